"""A host in Python: the plug-in used through ctypes, from open to close, with the bytes verified.

    python3 tests/abi/ctypes_host.py PLUGIN.so

Structs are written down once more here, from kvt_engine.h; their sizes are compared with
tests/abi/layout.golden, so that they cannot fall behind it.
"""
import ctypes
import os
import sys
from ctypes import (CFUNCTYPE, POINTER, Structure, byref, c_char_p, c_int32, c_uint32, c_uint64,
                    c_void_p, cast, sizeof)

PAGE_TOKENS = 16
BLOCK_TOKENS = 8
PAGES = 4
TOKENS = PAGES * PAGE_TOKENS
BLOCKS = TOKENS // BLOCK_TOKENS
BLOCK_BYTES = 64
WAIT_NS = 60 * 10**9
OK, INVAL, STALE, UNSUPPORTED = 0, -1, -4, -7
OPEN_MAGIC = 0x4B565430
WEIGHTS, KV_DTYPE, ROPE, LAYOUT = 1, 2, 3, 4
MISS, HIT = 0, 1
DONE = 1
TIERS = 4


def u32(*names):
    return [(name, c_uint32) for name in names]


def u64(*names):
    return [(name, c_uint64) for name in names]


class Host(Structure):
    _fields_ = u32("struct_size", "reserved0") + u64("caps_offered", "caps_required") + [
        ("ctx", c_void_p), ("log", c_void_p), ("alloc", c_void_p), ("free", c_void_p),
        ("now_ns", c_void_p), ("get_extension", c_void_p)]


class Field(Structure):
    _fields_ = u32("tag", "reserved0") + [("data", c_char_p), ("bytes", c_uint64)]


class OpenConfig(Structure):
    _fields_ = (u32("struct_size", "magic") + [("uri", c_char_p), ("uri_bytes", c_uint64)] +
                u32("role", "page_tokens", "group_ranks", "rank") +
                [("fields", POINTER(Field)), ("field_count", c_uint64), ("tenant", c_char_p)] +
                u64("tenant_bytes", "hbm_bytes", "host_bytes", "lease_ttl_ns") +
                [("evict_policy", c_char_p)] + u64("evict_policy_bytes", "flags") +
                [("nvme", c_char_p)] + u64("nvme_bytes") +
                [("admit_policy", c_char_p)] + u64("admit_policy_bytes",
                                                   "nvme_write_bytes_per_day"))


class Region(Structure):
    _fields_ = (u32("struct_size", "memory_kind") + u64("base", "block_bytes", "stride_bytes") +
                u32("group", "reserved0"))


class Layout(Structure):
    _fields_ = (u32("struct_size", "device_kind") + [("device_ordinal", c_int32)] +
                u32("block_tokens") + [("block_count", c_uint64), ("regions", POINTER(Region)),
                                       ("region_count", c_uint64)])


class Lookup(Structure):
    _fields_ = (u32("struct_size", "reserved0") +
                [("request_id", c_uint64), ("tokens", POINTER(c_uint32))] +
                u64("token_count", "own_tokens") +
                [("fields", POINTER(Field)), ("field_count", c_uint64), ("extras", c_void_p),
                 ("extra_count", c_uint64)])


class LookupResult(Structure):
    _fields_ = (u32("struct_size", "answer") + u64("lease", "matched_tokens") +
                [("tier_tokens", c_uint64 * TIERS)])


class Restore(Structure):
    _fields_ = (u32("struct_size", "flags") +
                u64("binding", "lease", "first_token", "token_count") +
                [("blocks", POINTER(c_uint32)), ("block_count", c_uint64), ("stream", c_void_p)])


class Save(Structure):
    _fields_ = (u32("struct_size", "flags") + u64("binding", "request_id") +
                [("tokens", POINTER(c_uint32)), ("token_count", c_uint64),
                 ("blocks", POINTER(c_uint32))] + u64("block_count", "valid_from_token") +
                [("fields", POINTER(Field)), ("field_count", c_uint64), ("extras", c_void_p),
                 ("extra_count", c_uint64), ("stream", c_void_p)])


class JobResult(Structure):
    _fields_ = (u32("struct_size", "state") + [("status", c_int32)] + u32("reserved0") +
                u64("tokens_good") + [("tier_tokens", c_uint64 * TIERS)] + u64("bytes_moved"))


class Report(Structure):
    _fields_ = (u32("struct_size", "reserved0") +
                u64("request_id", "prompt_tokens", "own_tokens", "computed_tokens"))


class Stats(Structure):
    """The beginning of kvt_stats: as an older host, we are given as much as we have room for."""
    _fields_ = (u32("struct_size", "page_tokens") +
                u64("requests_reported", "requests_unreported", "conservation_breaks",
                    "tokens_asked", "tokens_own", "tokens_computed") +
                [("tokens_delivered", c_uint64 * TIERS)])


def calls(*arguments):
    return CFUNCTYPE(c_int32, c_void_p, *arguments)


class Entry(Structure):
    _fields_ = u32("struct_size", "abi_minor") + u64("caps_offered", "caps_required") + [
        ("open", CFUNCTYPE(c_int32, POINTER(Host), POINTER(OpenConfig), POINTER(c_void_p),
                           c_char_p, c_uint64)),
        ("close", calls()),
        ("bind", calls(POINTER(Layout), POINTER(c_uint64), c_char_p, c_uint64)),
        ("unbind", calls(c_uint64)),
        ("lookup", calls(POINTER(Lookup), POINTER(LookupResult))),
        ("release", calls(c_uint64)),
        ("lease_export", calls(c_uint64, c_void_p)),
        ("lease_import", calls(c_void_p, POINTER(c_uint64))),
        ("restore", calls(POINTER(Restore), POINTER(c_uint64))),
        ("save", calls(POINTER(Save), POINTER(c_uint64))),
        ("poll", calls(c_uint64, c_uint64, POINTER(JobResult))),
        ("wait_region", calls(c_uint64, c_uint32, c_void_p)),
        ("cancel", calls(c_uint64)),
        ("report", calls(POINTER(Report))),
        ("hint", calls(c_uint32, c_void_p, c_uint64)),
        ("flush", calls(c_uint64)),
        ("stats", calls(POINTER(Stats))),
        ("quiesce", calls(c_uint64)),
        ("get_extension", CFUNCTYPE(c_void_p, c_void_p, c_char_p))]


WORK = CFUNCTYPE(None, c_void_p)


class Streams(Structure):
    _fields_ = u32("struct_size", "reserved0") + [
        ("create", calls(POINTER(c_void_p))),
        ("destroy", CFUNCTYPE(None, c_void_p, c_void_p)),
        ("enqueue", calls(c_void_p, WORK, c_void_p)),
        ("event_create", calls(POINTER(c_void_p))),
        ("event_destroy", CFUNCTYPE(None, c_void_p, c_void_p)),
        ("record", calls(c_void_p, c_void_p)),
        ("wait", calls(c_void_p, c_void_p)),
        ("sync", calls(c_void_p, c_uint64))]


GOLDEN = {"kvt_host": Host, "kvt_field": Field, "kvt_open_config": OpenConfig,
          "kvt_region": Region, "kvt_layout": Layout, "kvt_lookup": Lookup,
          "kvt_lookup_result": LookupResult, "kvt_restore": Restore, "kvt_save": Save,
          "kvt_job_result": JobResult, "kvt_report": Report, "kvt_plugin_entry": Entry,
          "kvt_cpu_stream_ext": Streams}


def made(kind, **members):
    """A struct with its size set, as the KVT_x_INIT macros do."""
    return kind(struct_size=sizeof(kind), **members)


def expect(what, got, wanted):
    if got != wanted:
        sys.exit(f"{what}: {got!r}, not {wanted!r}")


def check_layout():
    golden = {}
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "layout.golden")
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            words = line.split()
            if not line.startswith(" "):
                golden[words[0]] = words[1]
    for name, kind in GOLDEN.items():
        expect(f"the size of {name}", str(sizeof(kind)), golden[name])


class Engine:
    """One engine with the KV memory of two regions, each a bytearray."""

    def __init__(self, entry):
        self.entry = entry
        self.why = ctypes.create_string_buffer(256)
        self.host = made(Host)
        self.fields = (Field * 4)(Field(WEIGHTS, 0, b"0123456789abcdef", 16),
                                  Field(KV_DTYPE, 0, b"f32", 3), Field(ROPE, 0, None, 0),
                                  Field(LAYOUT, 0, b"python", 6))
        self.engine = c_void_p()
        expect("open", self.open(), OK)
        self.streams = cast(entry.get_extension(self.engine, b"kvt.cpu_stream/1"),
                            POINTER(Streams)).contents
        self.stream = c_void_p()
        expect("stream_create", self.streams.create(self.engine, byref(self.stream)), OK)
        self.memory = [bytearray(2 * BLOCKS * BLOCK_BYTES) for _ in range(2)]
        self.held = [(ctypes.c_char * len(region)).from_buffer(region) for region in self.memory]
        regions = (Region * 2)(*[
            made(Region, base=ctypes.addressof(region), block_bytes=BLOCK_BYTES,
                 stride_bytes=BLOCK_BYTES) for region in self.held])
        layout = made(Layout, block_tokens=BLOCK_TOKENS, block_count=2 * BLOCKS, regions=regions,
                      region_count=2)
        self.binding = c_uint64()
        status = entry.bind(self.engine, byref(layout), byref(self.binding), self.why, 256)
        expect(f"bind ({self.why.value})", status, OK)

    def open(self, **members):
        config = made(OpenConfig, magic=OPEN_MAGIC, role=3, page_tokens=PAGE_TOKENS,
                      fields=self.fields, field_count=4, host_bytes=1 << 20)
        for name, value in members.items():
            setattr(config, name, value)
        return self.entry.open(byref(self.host), byref(config), byref(self.engine), self.why, 256)

    def lookup(self, request_id, tokens):
        lookup = made(Lookup, request_id=request_id, tokens=tokens, token_count=len(tokens))
        result = made(LookupResult)
        expect("lookup", self.entry.lookup(self.engine, byref(lookup), byref(result)), OK)
        return result

    def finish(self, job):
        result = made(JobResult)
        expect("poll", self.entry.poll(self.engine, job, WAIT_NS, byref(result)), OK)
        expect("state", result.state, DONE)
        expect("status", result.status, OK)
        expect("a job that was told",
               self.entry.poll(self.engine, job, 0, byref(made(JobResult))), STALE)
        return result.tokens_good

    def save(self, tokens):
        """From blocks 0 and on; the stream fills them first."""
        def fill(_):
            for region, memory in enumerate(self.memory):
                for i in range(BLOCKS * BLOCK_BYTES):
                    memory[i] = (i // BLOCK_BYTES * 7 + i + region) % 251
        work = WORK(fill)
        expect("enqueue", self.streams.enqueue(self.engine, self.stream, work, None), OK)
        job = c_uint64()
        save = made(Save, binding=self.binding, request_id=1, tokens=tokens, token_count=TOKENS,
                    blocks=(c_uint32 * BLOCKS)(*range(BLOCKS)), block_count=BLOCKS,
                    stream=self.stream)
        expect("save", self.entry.save(self.engine, byref(save), byref(job)), OK)
        expect("saved", self.finish(job), TOKENS)

    def restore(self, found):
        """Into the blocks after those, last block first."""
        job = c_uint64()
        blocks = (c_uint32 * BLOCKS)(*range(2 * BLOCKS - 1, BLOCKS - 1, -1))
        restore = made(Restore, binding=self.binding, lease=found.lease,
                       token_count=found.matched_tokens, blocks=blocks, block_count=BLOCKS,
                       stream=self.stream)
        expect("restore", self.entry.restore(self.engine, byref(restore), byref(job)), OK)
        expect("restored", self.finish(job), TOKENS)

    def block(self, region, number):
        return bytes(self.memory[region][number * BLOCK_BYTES:(number + 1) * BLOCK_BYTES])

    def same_blocks(self, shift):
        """Are the restored blocks those that were saved, `shift` blocks away?"""
        pairs = [(2 * BLOCKS - 1 - b, (b + shift) % BLOCKS) for b in range(BLOCKS)]
        return all(self.block(region, to) == self.block(region, source)
                   for region in range(2) for to, source in pairs)

    def close(self):
        expect("close with a stream", self.entry.close(self.engine), -10)
        expect("quiesce", self.entry.quiesce(self.engine, WAIT_NS), OK)
        self.streams.destroy(self.engine, self.stream)
        expect("unbind", self.entry.unbind(self.engine, self.binding), OK)
        expect("close", self.entry.close(self.engine), OK)


def main():
    check_layout()
    library = ctypes.CDLL(sys.argv[1])
    entry = Entry.in_dll(library, "kvt_plugin_entry_v0")
    if entry.struct_size < sizeof(Entry):
        sys.exit("the plug-in's table is shorter than ours")
    engine = Engine(entry)
    tokens = (c_uint32 * (TOKENS + 1))(*range(500, 501 + TOKENS))
    expect("the first answer", engine.lookup(1, tokens).answer, MISS)
    engine.save(tokens)
    found = engine.lookup(2, tokens)
    expect("the second answer", found.answer, HIT)
    expect("matched", found.matched_tokens, TOKENS)
    expect("the bytes before (a control)", engine.same_blocks(0), False)
    engine.restore(found)
    expect("the bytes", engine.same_blocks(0), True)
    expect("other bytes (a control)", engine.same_blocks(1), False)
    tokens[0] += 1
    expect("other tokens (a control)", engine.lookup(3, tokens).answer, MISS)
    for request_id, computed in ((1, TOKENS + 1), (2, 1), (3, TOKENS + 1)):
        report = made(Report, request_id=request_id, prompt_tokens=TOKENS + 1,
                      computed_tokens=computed)
        expect("report", entry.report(engine.engine, byref(report)), OK)
    expect("a lease that was reported", entry.release(engine.engine, found.lease), STALE)
    stats = made(Stats)
    expect("stats", entry.stats(engine.engine, byref(stats)), OK)
    expect("reported", stats.requests_reported, 3)
    expect("asked", stats.tokens_asked, 3 * (TOKENS + 1))
    expect("delivered", sum(stats.tokens_delivered), TOKENS)
    expect("conservation breaks", stats.conservation_breaks, 0)
    engine.close()
    expect("a flag that is not known", engine.open(flags=1 << 63), UNSUPPORTED)
    expect("a config without its magic", engine.open(magic=0), INVAL)
    print("the plug-in works from Python")


main()
