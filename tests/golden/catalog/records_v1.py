#!/usr/bin/env python3
"""Makes tests/golden/catalog/records_v1.h: records of the catalog, version 1, as cache/FORMAT.md
describes them, without our code.

    python3 tests/golden/catalog/records_v1.py > tests/golden/catalog/records_v1.h

This file is never changed after a release: a later version gets a file of its own.
"""
import ctypes
import ctypes.util
import struct

LIBRARY = ctypes.CDLL(ctypes.util.find_library("xxhash") or "libxxhash.so.0")
LIBRARY.XXH3_64bits_withSeed.restype = ctypes.c_uint64
LIBRARY.XXH3_64bits_withSeed.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64]

NAMESPACE, HEAD = 1 << 56, 2 << 56


def xxh3_64(data, seed):
    return LIBRARY.XXH3_64bits_withSeed(data, len(data), seed)


def sealed(body, seed):
    return struct.pack("<Q", xxh3_64(body, seed)) + body


def pattern(count, start):
    """Bytes that catalog_test.c makes in the same way."""
    return bytes((start + 7 * i) & 0xFF for i in range(count))


def page(seq, parent, ns, slot, generation, payload, checksum, tokens, extras):
    body = struct.pack("<QQIIIIII", parent, checksum, ns, slot, generation, payload, tokens, extras)
    body += struct.pack("<%dI" % tokens, *[seq * 1000 + i for i in range(tokens)])
    return sealed(body + pattern(40 * extras, seq), seq)


def namespace(number, group, slot_bytes, name_bytes):
    body = struct.pack("<QQII", group, slot_bytes, name_bytes, 0) + pattern(name_bytes, number)
    return sealed(body, NAMESPACE ^ number)


def head(page_tokens, stores):
    body = b"kvtcatlg" + struct.pack("<II", 1, 304) + pattern(16, 1)
    body += struct.pack("<II", page_tokens, stores)
    for i in range(8):
        body += pattern(16, 50 + i) + struct.pack("<QQ", (i + 1) << 30, 1 << 26) if i < stores else bytes(32)
    return body + struct.pack("<Q", xxh3_64(body, HEAD ^ 1))


def counters(seq_last, namespace_last):
    return sealed(struct.pack("<QII", seq_last, namespace_last, 0), HEAD ^ 2)


RECORDS = [
    ("head", head(16, 3)),
    ("counters", counters(1 << 40, 77)),
    ("namespace_short", namespace(1, 0, 65536, 0)),
    ("namespace_long", namespace(4294967295, 1 << 63, 1 << 40, 300)),
    ("page_first", page(1, 0, 1, 0, 1, 4096, 1, 16, 0)),
    ("page_second", page(2, 1, 1, 4294967295, 4294967295, 4294967295, (1 << 64) - 1, 16, 2)),
    ("page_empty", page(3, 0, 4294967295, 5, 6, 0, 0, 0, 0)),
    ("page_large", page(1000, 999, 7, 8, 9, 10, 11, 256, 3)),
]

print("/* Made by tests/golden/catalog/records_v1.py: do not edit. */")
print("#ifndef KVT_GOLDEN_CATALOG_RECORDS_V1_H")
print("#define KVT_GOLDEN_CATALOG_RECORDS_V1_H\n")
print("#include <stdint.h>\n")
print("/* clang-format off */")
for name, data in RECORDS:
    print("static const uint64_t record_v1_%s[] = {" % name)
    padded = data + bytes(-len(data) % 8)
    words = ["UINT64_C(0x%016x)," % word for (word,) in struct.iter_unpack("<Q", padded)]
    for i in range(0, len(words), 3):
        print("    " + " ".join(words[i:i + 3]))
    print("};")
    print("#define RECORD_V1_%s_BYTES %du" % (name.upper(), len(data)))
print("/* clang-format on */\n")
print("#endif")
