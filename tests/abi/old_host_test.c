/* A host that was compiled from the kept header of ABI 0.1 works with today's plug-in. */
#include "tests/abi/v0_1/kvt_engine.h"

#include "tests/abi/small_host.h"

static struct small_host small;

START_TEST(old_host_does_everything)
{
    ck_assert_int_eq(KVT_ABI_MAJOR, 0);
    ck_assert_int_eq(KVT_ABI_MINOR, 1);
    small_load(&small, NULL);
    ck_assert_uint_ge(small.entry->abi_minor, KVT_ABI_MINOR);
    small_open(&small);
    small_course(&small);
    small_close(&small);
}
END_TEST

/* The old host is refused what it asks for wrongly: the control. */
START_TEST(old_host_is_judged)
{
    small_load(&small, NULL);
    kvt_open_config config = small_config(&small);
    config.magic++;
    ck_assert_int_eq(
        small.entry->open(&small.host, &config, &small.engine, small.why, sizeof(small.why)),
        KVT_ERR_INVAL);
    config = small_config(&small);
    config.flags = UINT64_C(1) << 63;
    ck_assert_int_eq(
        small.entry->open(&small.host, &config, &small.engine, small.why, sizeof(small.why)),
        KVT_ERR_UNSUPPORTED);
}
END_TEST

static void add(TCase *tcase)
{
    tcase_add_test(tcase, old_host_does_everything);
    tcase_add_test(tcase, old_host_is_judged);
}

int main(void) { return small_main("old_host", add); }
