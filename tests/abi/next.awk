# Reads kvt_engine.h and writes the next version's: one 8-byte member at the end of kvt_lookup,
# kvt_stats and kvt_open_config, and one function at the end of the table, added as ABI.md says that
# members are added. Fails where it does not find one of them.

/^#define KVT_(LOOKUP|OPEN_CONFIG)_INIT/ { init = 1 }
init && /\}$/ {
    sub(/\}$/, ", 0}")
    init = 0
    changes++
}
/^\} (kvt_lookup|kvt_stats|kvt_open_config);$/ {
    print "    uint64_t next_member;"
    changes++
}
/^\} kvt_plugin_entry;$/ {
    print "    kvt_status (*next_function)(kvt_engine *);"
    changes++
}
{ print }
END { if (changes != 6) exit 1 }
