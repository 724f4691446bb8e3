# Reads kvt_engine.h and kvt_status.h and writes a C program that prints the layout of every struct
# and the value of every constant in them: what tests/abi/layout.golden holds.
#
# What is found is found by the header's own form: `typedef struct NAME {` ... `} NAME;`, one member
# a declaration, and `#define NAME VALUE` on one line. A struct that is written otherwise stops it.

function squeeze(text) {
    gsub(/[ \t\n]+/, " ", text)
    gsub(/^ | $/, "", text)
    return text
}

function quoted(text) {
    gsub(/\\/, "\\\\", text)
    gsub(/"/, "\\\"", text)
    return "\"" text "\""
}

# member TEXT: the name that a declaration declares.
function member(text, name) {
    if (match(text, /\(\*[a-z_0-9]+\)/)) {
        return substr(text, RSTART + 2, RLENGTH - 3)
    }
    name = text
    sub(/\[.*$/, "", name)
    sub(/^.*[ *]/, "", name)
    return name
}

function end_struct(i, n, parts, text) {
    printf "    SIZE(%s);\n", struct
    n = split(body, parts, ";")
    for (i = 1; i < n; i++) {
        text = squeeze(parts[i])
        if (text ~ /,/ && text !~ /\(/) {
            print "layout: two members in one declaration: " text >"/dev/stderr"
            failed = 1
        }
        printf "    MEMBER(%s, %s, %s);\n", struct, member(text), quoted(text)
    }
    struct = ""
}

BEGIN {
    print "#include <stdio.h>\n#include \"kvt_engine.h\""
    print "#define SIZE(type) printf(\"%s %zu\\n\", #type, sizeof(type))"
    print "#define MEMBER(type, name, text) printf(\"  %4zu %4zu %s\\n\", \\"
    print "    offsetof(type, name), sizeof(((type *)0)->name), text)"
    print "#define VALUE(name) _Generic((name), char *: printf(\"%s \\\"%s\\\"\\n\", #name, \\"
    print "    (const char *)(size_t)(name)), default: printf(\"%s %lld\\n\", #name, \\"
    print "    (long long)(size_t)(name)))"
    print "#define STATUS(name, value, sentence, retry) \\"
    print "    printf(\"KVT_%s %d%s\\n\", #name, KVT_##name, (retry) ? \" retry\" : \"\");"
    print "int main(void)\n{"
    print "    printf(\"pointer %zu\\n\", sizeof(void *));"
}

{
    line = $0
    gsub(/\/\*[^*]*\*\//, "", line)
    if (comment) {
        if (line !~ /\*\//) next
        sub(/^.*\*\//, "", line)
        comment = 0
    }
    if (line ~ /\/\*/) {
        sub(/\/\*.*$/, "", line)
        comment = 1
    }
}

line ~ /^#define KVT_[A-Z0-9_]+ +[^ ]/ && line !~ /_INIT |\\$|MUST_CHECK/ {
    split(line, word, " ")
    printf "    VALUE(%s);\n", word[2]
}

line ~ /^typedef struct [a-z_]+ \{/ {
    split(line, word, " ")
    struct = word[3]
    body = ""
    structs++
    next
}

line ~ /^typedef struct [a-z_]+ [a-z_]+;/ || line ~ /^#/ { next }

line ~ /^(typedef +)?(struct|union)/ {
    print "layout: not a struct that is understood: " line >"/dev/stderr"
    failed = 1
}

struct != "" && line ~ /^\} / { end_struct(); next }
struct != "" { body = body " " line }

END {
    print "    KVT_STATUS_MAP(STATUS)\n    return 0;\n}"
    if (failed || structs == 0) exit 1
}
