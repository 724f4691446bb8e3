/*
 * Lines of a plain or gzip file, told apart by the first two bytes.
 *
 * A gzip file is one member or several, one behind the other, and nothing else: what follows the
 * last one is an error, where zlib's own gzread() would leave it out in silence.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "tools/trace_read.h"

#define CHUNK_BYTES 65536U
#define GZIP_MAGIC_BYTES 2U
#define GZIP_WINDOW_BITS (15 + 16) /* zlib's word for: gzip, and nothing but gzip */

/* The file below the lines. */
struct kvt_trace_source {
    int fd;
    bool gzip, in_member, over; /* over: the file has no more bytes */
    z_stream inflater;          /* gzip: open */
    uint64_t file_bytes;        /* read so far */
    unsigned char bytes[CHUNK_BYTES];
    size_t bytes_at, bytes_end; /* plain: what was read to tell the formats apart */
};

kvt_status kvt_trace_grow(void **array, uint64_t *capacity, uint64_t needed, size_t element_bytes)
{
    if (needed <= *capacity) {
        return KVT_OK;
    }
    uint64_t wanted = *capacity < 16 ? 16 : *capacity;
    while (wanted < needed) {
        if (wanted > UINT64_MAX / 2) {
            return KVT_ERR_NOMEM;
        }
        wanted *= 2;
    }
    if (wanted > SIZE_MAX / element_bytes) {
        return KVT_ERR_NOMEM;
    }
    void *grown = realloc(*array, (size_t)wanted * element_bytes);
    if (grown == NULL) {
        return KVT_ERR_NOMEM;
    }
    *array = grown;
    *capacity = wanted;
    return KVT_OK;
}

static void set_error(struct kvt_lines *lines, const char *text)
{
    (void)snprintf(lines->error, sizeof(lines->error), "%s", text);
}

/* ---- the file ---- */

/* Where the next byte that was not used yet stands in the file. */
static uint64_t offset_of(const struct kvt_trace_source *source)
{
    return source->file_bytes - (source->bytes_end - source->bytes_at);
}

static void set_error_at(struct kvt_lines *lines, const char *text)
{
    (void)snprintf(lines->error, sizeof(lines->error), "%s, at byte %" PRIu64 " of the file", text,
                   offset_of(lines->source));
}

/* Reads on until `wanted` bytes are there or the file is over. */
static enum kvt_line_end fill(struct kvt_lines *lines, size_t wanted)
{
    struct kvt_trace_source *source = lines->source;
    if (source->bytes_end - source->bytes_at < wanted && source->bytes_at > 0) {
        memmove(source->bytes, source->bytes + source->bytes_at,
                source->bytes_end - source->bytes_at);
        source->bytes_end -= source->bytes_at;
        source->bytes_at = 0;
    }
    while (source->bytes_end - source->bytes_at < wanted && !source->over) {
        ssize_t got = read(source->fd, source->bytes + source->bytes_end,
                           sizeof(source->bytes) - source->bytes_end);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            set_error(lines, strerror(errno));
            return KVT_LINE_BROKEN;
        }
        source->over = got == 0;
        source->file_bytes += (uint64_t)got;
        source->bytes_end += (size_t)got;
    }
    return KVT_LINE_GOOD;
}

static bool at_magic(const struct kvt_trace_source *source)
{
    const unsigned char *at = source->bytes + source->bytes_at;
    return source->bytes_end - source->bytes_at >= GZIP_MAGIC_BYTES && at[0] == 0x1f &&
           at[1] == 0x8b;
}

/* Between two members: begins the next one. NONE: there is none. */
static enum kvt_line_end next_member(struct kvt_lines *lines)
{
    struct kvt_trace_source *source = lines->source;
    enum kvt_line_end end = fill(lines, GZIP_MAGIC_BYTES);
    if (end != KVT_LINE_GOOD) {
        return end;
    }
    if (source->bytes_at == source->bytes_end) {
        return KVT_LINE_NONE;
    }
    if (!at_magic(source)) {
        set_error_at(lines, "after the compressed data come bytes that are not gzip");
        return KVT_LINE_BROKEN;
    }
    if (inflateReset(&source->inflater) != Z_OK) {
        set_error(lines, "the decompressor failed");
        return KVT_LINE_BROKEN;
    }
    source->in_member = true;
    return KVT_LINE_GOOD;
}

/* Some bytes of a gzip file into lines->chunk. */
static enum kvt_line_end refill_gzip(struct kvt_lines *lines)
{
    struct kvt_trace_source *source = lines->source;
    z_stream *inflater = &source->inflater;
    while (lines->chunk_bytes == 0) {
        enum kvt_line_end end = source->in_member ? fill(lines, 1) : next_member(lines);
        if (end != KVT_LINE_GOOD) {
            return end;
        }
        inflater->next_in = source->bytes + source->bytes_at;
        inflater->avail_in = (uInt)(source->bytes_end - source->bytes_at);
        inflater->next_out = (unsigned char *)lines->chunk;
        inflater->avail_out = CHUNK_BYTES;
        int code = inflate(inflater, Z_NO_FLUSH);
        source->bytes_at = source->bytes_end - inflater->avail_in;
        lines->chunk_bytes = CHUNK_BYTES - inflater->avail_out;
        source->in_member = code != Z_STREAM_END;
        if (code == Z_MEM_ERROR) {
            return KVT_LINE_NOMEM;
        }
        bool ends = code == Z_BUF_ERROR && source->over;
        bool damaged = code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR;
        /* What came before the bad place is read first, so that the line's number is right; the
         * inflater then says the same again. */
        if (lines->chunk_bytes == 0 && (ends || damaged)) {
            set_error_at(lines, ends ? "the compressed data ends too early"
                                     : "the compressed data is damaged");
            return KVT_LINE_BROKEN;
        }
    }
    return KVT_LINE_GOOD;
}

/* Reads the next chunk. At the end of the file: NONE. */
static enum kvt_line_end refill(struct kvt_lines *lines)
{
    struct kvt_trace_source *source = lines->source;
    lines->chunk_at = 0;
    lines->chunk_bytes = 0;
    if (source->gzip) {
        return refill_gzip(lines);
    }
    enum kvt_line_end end = fill(lines, 1);
    size_t bytes = source->bytes_end - source->bytes_at;
    if (end != KVT_LINE_GOOD || bytes == 0) {
        return end != KVT_LINE_GOOD ? end : KVT_LINE_NONE;
    }
    memcpy(lines->chunk, source->bytes + source->bytes_at, bytes);
    lines->chunk_bytes = bytes;
    source->bytes_at = source->bytes_end;
    return KVT_LINE_GOOD;
}

static void source_close(struct kvt_trace_source *source)
{
    if (source == NULL) {
        return;
    }
    if (source->gzip) {
        (void)inflateEnd(&source->inflater);
    }
    if (source->fd >= 0) {
        (void)close(source->fd);
    }
    free(source);
}

kvt_status kvt_lines_open(struct kvt_lines *lines, const char *path, uint64_t line_bytes_max)
{
    memset(lines, 0, sizeof(*lines));
    lines->line_bytes_max = line_bytes_max;
    kvt_status status = KVT_ERR_NOMEM;
    set_error(lines, "memory could not be had");
    lines->chunk = malloc(CHUNK_BYTES);
    lines->source = calloc(1, sizeof(*lines->source));
    if (lines->chunk == NULL || lines->source == NULL) {
        free(lines->source);
        lines->source = NULL;
        goto undo_lines;
    }
    lines->source->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (lines->source->fd < 0) {
        set_error(lines, strerror(errno));
        status = KVT_ERR_IO;
        goto undo_lines;
    }
    if (fill(lines, GZIP_MAGIC_BYTES) != KVT_LINE_GOOD) {
        status = KVT_ERR_IO;
        goto undo_lines;
    }
    if (at_magic(lines->source)) {
        if (inflateInit2(&lines->source->inflater, GZIP_WINDOW_BITS) != Z_OK) {
            goto undo_lines;
        }
        lines->source->gzip = true;
    }
    return KVT_OK;
undo_lines:
    kvt_lines_close(lines);
    return status;
}

void kvt_lines_close(struct kvt_lines *lines)
{
    source_close(lines->source);
    free(lines->chunk);
    free(lines->line);
    lines->source = NULL;
    lines->chunk = NULL;
    lines->line = NULL;
}

const char *kvt_lines_error(const struct kvt_lines *lines) { return lines->error; }

/* ---- lines ---- */

enum kvt_line_end kvt_lines_next(struct kvt_lines *lines)
{
    lines->line_bytes = 0;
    bool any = false;
    for (;;) {
        if (lines->chunk_at == lines->chunk_bytes) {
            enum kvt_line_end end = refill(lines);
            if (end == KVT_LINE_NONE && any) {
                return KVT_LINE_GOOD;
            }
            if (end != KVT_LINE_GOOD) {
                lines->line_number += end == KVT_LINE_BROKEN ? 1 : 0;
                return end;
            }
        }
        if (!any) {
            lines->line_number++;
            any = true;
        }
        const char *from = lines->chunk + lines->chunk_at;
        size_t left = lines->chunk_bytes - lines->chunk_at;
        const char *newline = memchr(from, '\n', left);
        size_t take = newline != NULL ? (size_t)(newline - from) : left;
        if (take > lines->line_bytes_max - lines->line_bytes) {
            return KVT_LINE_TOO_LONG;
        }
        if (kvt_trace_grow((void **)&lines->line, &lines->line_capacity,
                           lines->line_bytes + take + 1, 1) != KVT_OK) {
            return KVT_LINE_NOMEM;
        }
        memcpy(lines->line + lines->line_bytes, from, take);
        lines->line_bytes += take;
        lines->chunk_at += take + (newline != NULL ? 1 : 0);
        if (newline != NULL) {
            return KVT_LINE_GOOD;
        }
    }
}
