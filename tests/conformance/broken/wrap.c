/* What every broken plug-in has: a table copied from the real one when the library is loaded. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/conformance/broken/broken.h"

/* Not constant as the header has it, hence the name that only the assembler sees. */
extern kvt_plugin_entry kvt_broken_table __asm__(KVT_PLUGIN_ENTRY_NAME);
__attribute__((visibility("default"))) kvt_plugin_entry kvt_broken_table;

const kvt_plugin_entry *kvt_broken_real;

__attribute__((constructor)) static void load_real(void)
{
    const char *path = getenv("KVT_REAL_PLUGIN");
    void *library = path != NULL ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    kvt_broken_real = library != NULL ? dlsym(library, KVT_PLUGIN_ENTRY_NAME) : NULL;
    if (kvt_broken_real == NULL) {
        (void)fprintf(stderr, "KVT_REAL_PLUGIN does not name the real plug-in\n");
        exit(1);
    }
    kvt_broken_table = *kvt_broken_real;
    kvt_broken_break(&kvt_broken_table);
}
