#!/usr/bin/env python3
"""Makes the hand-written part of the fuzzers' corpus: small examples of every format and of every kind
of mistake. What fuzzing finds is kept beside it."""
import gzip
import os

HERE = os.path.dirname(os.path.abspath(__file__))

TRACE = {
    "text": b'{"session_id":"a","messages":[{"role":"system","content":"be brief"},'
            b'{"role":"user","content":"hello"},{"role":"assistant","content":"hi"}]}\n',
    "text_escapes": b'{"session_id":"\\u00e9","messages":[{"role":"user","content":"\\ud83d\\ude00\\n"},'
                    b'{"role":"assistant","content":""}]}\n',
    "mooncake": b'{"timestamp":0,"input_length":600,"output_length":5,"hash_ids":[0,1]}\n'
                b'{"timestamp":7,"input_length":1024,"output_length":5,"hash_ids":[0,2]}\n',
    "kvtrace": b'{"kvtrace":{"version":1,"block_size":16,"tail":"floor"}}\n'
               b'{"timestamp":0,"input_length":40,"output_length":5,"hash_runs":[[0,2]],'
               b'"session_id":"a","turn":1,"type":"main","stop":"tool_use"}\n'
               b'{"timestamp":9,"input_length":60,"output_length":5,"hash_runs":[[0,2],[7,1]],'
               b'"session_id":"a","turn":2,"type":"main","stop":"end_turn","delay":3}\n',
    "kvtrace_ceil": b'{"kvtrace":{"version":1,"block_size":16,"tail":"ceil"}}\n'
                    b'{"timestamp":0,"input_length":40,"output_length":5,"hash_runs":[[0,3]]}\n',
    "empty": b"",
    "blank_lines": b"\n\n",
    "not_json": b"hello\n",
    "truncated": b'{"timestamp":0,"input_length":600,"output_len',
    "negative": b'{"timestamp":-1,"input_length":600,"output_length":5,"hash_ids":[0,1]}\n',
    "huge": b'{"timestamp":0,"input_length":99999999999999999999,"output_length":5,"hash_ids":[0]}\n',
    "runs_too_many": b'{"kvtrace":{"block_size":16}}\n'
                     b'{"timestamp":0,"input_length":40,"output_length":5,'
                     b'"hash_runs":[[0,4294967295],[1,4294967295]]}\n',
    "bad_gzip": b"\x1f\x8b\x08\x00garbage",
}
OPTIONS = {"count": b"131072", "zeros": b"0007", "size": b"64M", "space": b"10 GB", "word": b"1X",
           "overflow": b"99999999999999999999", "shift": b"99999999T", "percent": b"12.34",
           "sign": b"-1", "point": b"."}


def write(kind, name, data):
    folder = os.path.join(HERE, "corpus", kind)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as out:
        out.write(data)


for name, data in TRACE.items():
    write("trace", name, data)
write("trace", "text_gzip", gzip.compress(TRACE["text"], mtime=0))
PARTS = [gzip.compress(TRACE["mooncake"][:90], mtime=0), gzip.compress(TRACE["mooncake"][90:], mtime=0)]
write("trace", "two_gzip", b"".join(PARTS))
write("trace", "gzip_and_text", PARTS[0] + b"and more\n")
write("trace", "gzip_and_zeros", PARTS[0] + bytes(512))
write("trace", "gzip_and_half", PARTS[0] + PARTS[1][:1])
write("trace", "cut_gzip", gzip.compress(TRACE["mooncake"] * 20, mtime=0)[:60])
for name, data in OPTIONS.items():
    write("options", name, data)
