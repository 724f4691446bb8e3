#!/usr/bin/env python3
"""Makes tests/golden/key_vectors.h: page keys computed from their description, without our code.

    python3 tests/golden/key_vectors.py > tests/golden/key_vectors.h

A key is XXH3-128 (seed 0, big endian) over the key before it, the page's tokens (little endian) and
the bytes of the extra keys that begin in the page; the key before the first page is XXH3-128 over the
canonical namespace. The hash comes from Python's xxhash module where there is one, else from the C
library; both give the same file.
"""
import ctypes
import ctypes.util
import struct
import sys

try:
    import xxhash

    def xxh3_128(data):
        return xxhash.xxh3_128_digest(data)
except ImportError:

    class Hash128(ctypes.Structure):
        _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]

    LIBRARY = ctypes.CDLL(ctypes.util.find_library("xxhash") or "libxxhash.so.0")
    LIBRARY.XXH3_128bits.restype = Hash128
    LIBRARY.XXH3_128bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]

    def xxh3_128(data):
        value = LIBRARY.XXH3_128bits(data, len(data))
        return struct.pack(">QQ", value.high, value.low)


CHAIN_PAGES = 3
# namespace bytes, tokens of a page, bytes of the extra keys that begin in each page
CASES = [
    (1, 16, 0),
    (17, 16, 0),
    (300, 1, 0),
    (300, 4, 0),
    (300, 16, 40),
    (300, 16, 80),
    (64, 63, 0),
    (64, 64, 0),
    (64, 65, 0),
    (64, 64, 240),
    (64, 64, 256),
    (64, 64, 257),
    (64, 65, 40),
    (64, 256, 400),
    (64, 1024, 0),
]


def pattern(count, start):
    """Bytes that key_test.c makes in the same way."""
    return bytes((start + 7 * i) & 0xFF for i in range(count))


def page_tokens(first, count):
    """The tokens of a prompt at positions first .. first + count - 1."""
    return [(0x9E3779B1 * (first + i) + 12345) & 0xFFFFFFFF for i in range(count)]


def chain(namespace_bytes, tokens, extra_bytes):
    key = xxh3_128(pattern(namespace_bytes, 3))
    yield key
    for page in range(CHAIN_PAGES):
        words = page_tokens(page * tokens, tokens)
        key = xxh3_128(key + struct.pack("<%dI" % tokens, *words) + pattern(extra_bytes, page))
        yield key


def main():
    out = sys.stdout
    out.write("/* Made by tests/golden/key_vectors.py: do not edit. */\n")
    out.write("#ifndef KVT_GOLDEN_KEY_VECTORS_H\n#define KVT_GOLDEN_KEY_VECTORS_H\n\n")
    out.write("#include <stddef.h>\n#include <stdint.h>\n\n")
    out.write("#define KEY_VECTOR_PAGES %du\n\n" % CHAIN_PAGES)
    out.write("struct key_vector {\n    size_t namespace_bytes;\n    uint32_t page_tokens;\n")
    out.write("    size_t extra_bytes;\n")
    out.write("    const char *keys[KEY_VECTOR_PAGES + 1]; /* the namespace's, then the pages' */\n};\n\n")
    out.write("static const struct key_vector key_vectors[] = {\n")
    for case in CASES:
        out.write("    {%d,\n     %d,\n     %d,\n     {" % case)
        keys = ['"%s"' % key.hex() for key in chain(*case)]
        pairs = [", ".join(keys[i : i + 2]) for i in range(0, len(keys), 2)]
        out.write(",\n      ".join(pairs))
        out.write("}},\n")
    out.write("};\n\n#endif\n")


main()
