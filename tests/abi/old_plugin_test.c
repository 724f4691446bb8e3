/* A plug-in that was compiled from the kept header of ABI 0.1 works with a host of today. */
#include "tests/abi/small_host.h"

static struct small_host small;

START_TEST(old_plugin_serves_a_host_of_today)
{
    small_load(&small, small_old_plugin());
    ck_assert_uint_eq(small.entry->abi_minor, 1);
    small_open(&small);
    small_course(&small);
    small_close(&small);
}
END_TEST

static void add(TCase *tcase) { tcase_add_test(tcase, old_plugin_serves_a_host_of_today); }

int main(void) { return small_main("old_plugin", add); }
