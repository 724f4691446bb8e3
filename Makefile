# kvtier: build, tests and checks. `make help` lists the targets.
#
#   VARIANT=release|debug|asan|tsan|cover
#                                     objects in build/<variant>/; the release products in build/
#   PREFIX=/usr/local, DESTDIR=       where `make install` puts it
#   GPU=0                             build without CUDA although nvcc is there
#   V=1                               show the commands
#   CFLAGS=-Wno-error                 for a compiler that warns of more than ours

VARIANT ?= release
V ?= 0

MAKEFLAGS += --no-builtin-rules --no-print-directory
.SUFFIXES:
.DELETE_ON_ERROR:
SHELL := /bin/bash

# What is built is built by as many jobs as there are processors, unless -j says otherwise.
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
J = $(if $(findstring jobserver,$(MAKEFLAGS)),,-j$(JOBS))

Q := $(if $(filter 1,$(V)),,@)
say = @printf '  %-5s %s\n' '$(1)' '$(2)'
ifeq ($(V),1)
say = @:
endif

ifneq ($(words $(filter release debug asan tsan cover,$(VARIANT))),1)
$(error VARIANT must be release, debug, asan, tsan or cover, not '$(VARIANT)')
endif

BUILD := build/$(VARIANT)
OUT := $(if $(filter release,$(VARIANT)),build,$(BUILD))
KVT_VERSION := $(strip $(file <VERSION))
# The shared library: its file has major and minor of the version in its name, its soname the major.
KVT_VERSION_WORDS := $(subst ., ,$(KVT_VERSION))
KVT_SO_MAJOR := libkvtier.so.$(word 1,$(KVT_VERSION_WORDS))
KVT_SO := $(KVT_SO_MAJOR).$(word 2,$(KVT_VERSION_WORDS))
PREFIX ?= /usr/local

# ---- tools and flags ----
# pkg-config runs only in recipes: before `make setup` it may not be there.

ifeq ($(origin CC),default)
CC := gcc
endif
ifeq ($(origin AR),default)
AR := ar
endif
PKG_CONFIG ?= pkg-config
pkg = $(shell $(PKG_CONFIG) $(1) $(2) 2>/dev/null)

# The folders of the includes: internal ones from the root, public headers by bare name.
INCLUDES := -I. -Icache -Iengine_plugin
WARNINGS := -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes \
    -Wpointer-arith -Wcast-align -Wvla -Wundef -Wswitch-enum -Wformat=2 -Werror
CPPFLAGS_ALL = -D_GNU_SOURCE -DKVT_VERSION='"$(KVT_VERSION)"' $(INCLUDES) $(CPPFLAGS)

OPT_release := -O2 -g -fno-omit-frame-pointer -fstack-protector-strong -U_FORTIFY_SOURCE \
    -D_FORTIFY_SOURCE=2
OPT_debug := -O1 -g -fno-omit-frame-pointer -DKVT_DEBUG
OPT_asan := -O1 -g -fno-omit-frame-pointer -DKVT_DEBUG -fsanitize=address,undefined \
    -fno-sanitize-recover=all
OPT_tsan := -O1 -g -fno-omit-frame-pointer -DKVT_DEBUG -fsanitize=thread
OPT_cover := -O0 -g --coverage -fprofile-update=atomic
LINK_release := -Wl,-z,relro,-z,now
LINK_asan := -fsanitize=address,undefined
LINK_tsan := -fsanitize=thread
LINK_cover := --coverage

CFLAGS_ALL = -std=c11 -fPIC -pthread $(OPT_$(VARIANT)) $(WARNINGS) $(CFLAGS)
LDFLAGS_ALL = -pthread $(LINK_$(VARIANT)) $(LDFLAGS)

# The reference engine computes; its bits must be the same everywhere, so no -ffast-math and no
# contraction of a multiplication and an addition into one rounding.
REF_CFLAGS := -O3 -ffp-contract=off

# jemalloc is for the released program only: the sanitizers bring an allocator of their own.
PROGRAM_LIBS = $(if $(filter release,$(VARIANT)),$(call pkg,--libs,jemalloc)) \
    $(call pkg,--libs,jansson) $(call pkg,--libs,zlib) $(call pkg,--libs,libxxhash) $(URING) \
    -ldl -lm
TEST_LIBS = $(call pkg,--libs,check) $(call pkg,--libs,jansson) $(call pkg,--libs,zlib) \
    $(call pkg,--libs,libxxhash) $(URING) -ldl -lm
# The plug-in and the programs carry xxHash, liburing and LMDB inside where static libraries are
# there: they then need nothing of them on the machine they run on. liburing's is built to be linked
# into a library too; LMDB's is not, and only a program of its own needs it.
archive = $(wildcard $(call pkg,--variable=libdir,$(1))/$(2))
XXHASH_A = $(call archive,libxxhash,libxxhash.a)
URING = $(or $(call archive,liburing,liburing.a),$(call pkg,--libs,liburing))
LMDB = $(or $(call archive,lmdb,liblmdb.a),$(call pkg,--libs,lmdb))

# ---- sources ----

CORE_SRC := $(wildcard cache/*.c cache/base/*.c cache/device/*.c cache/io/*.c kernels/*.c \
    cache/tier/*.c cache/catalog/*.c cache/index/*.c cache/move/*.c policies/*.c)
# The catalog's process: the only one that opens LMDB.
CATALOG_SRC := $(wildcard cache/catalog/process/*.c)
CATALOG_SHARED := cache/catalog/record.c $(wildcard cache/base/*.c)
PLUGIN_SRC := $(wildcard engine_plugin/*.c)
REF_SRC := $(wildcard engine_plugin/reference/*.c)
TOOL_SRC := $(wildcard tools/*.c)
TOOL_MAIN := tools/main.c
SUPPORT_SRC := $(wildcard tests/support/*.c)
CRASH_TEST_SRC := $(wildcard tests/crash/*_test.c)
TEST_SRC := $(wildcard tests/unit/*_test.c tests/model/*_test.c tests/abi/*_test.c)
TEST_SH := $(filter-out tests/long/%,$(wildcard tests/*_test.sh tests/*/*_test.sh))
LONG_SRC := $(wildcard tests/long/*_test.c)
LONG_SH := $(wildcard tests/long/*_test.sh)

obj = $(patsubst %.c,$(BUILD)/%.o,$(1))
CORE_OBJ := $(call obj,$(CORE_SRC))
REF_OBJ := $(call obj,$(REF_SRC))
TOOL_OBJ := $(call obj,$(filter-out $(TOOL_MAIN),$(TOOL_SRC)))
SUPPORT_OBJ := $(call obj,$(SUPPORT_SRC))
TESTS := $(patsubst %.c,$(BUILD)/%,$(TEST_SRC))
LONG_TESTS := $(patsubst %.c,$(BUILD)/%,$(LONG_SRC))
# Programs to be killed at named steps: the sources that have some are compiled once more for them.
CRASH_TESTS := $(patsubst %.c,$(BUILD)/%,$(CRASH_TEST_SRC))
CRASH_WORKER := $(BUILD)/crash/crash_worker
CRASH_CATALOG := $(BUILD)/crash/kvtier-catalog
CRASH_RECORDER := $(BUILD)/crash/recorder.so
CRASH_SRC := $(shell grep -l KVT_CRASH_POINT cache/*.c cache/*/*.c cache/*/*/*.c)
CRASH_RIG := $(call obj,tests/crash/rig.c tests/crash/verify.c tests/crash/child.c)
# The conformance program, and plug-ins that it must refuse; wrap.c is what those have in common.
CONF_OBJ := $(call obj,$(wildcard tests/conformance/*.c))
CONFORMANCE := $(OUT)/kvt_conformance
BROKEN_WRAP := $(BUILD)/tests/conformance/broken/wrap
BROKEN := $(addsuffix .so,$(filter-out $(BROKEN_WRAP),$(patsubst %.c,$(BUILD)/%,$(wildcard \
    tests/conformance/broken/*.c))))

LIB := $(OUT)/libkvtier.a
SHARED := $(OUT)/$(KVT_SO)
PLUGIN := $(OUT)/libkvtier_plugin.so
PROGRAM := $(OUT)/kvtier
CATALOG := $(OUT)/kvtier-catalog
PRODUCTS := $(LIB) $(SHARED) $(PLUGIN) $(PROGRAM) $(CATALOG)

# ---- CUDA ----

NVCC ?= $(firstword $(wildcard /usr/local/cuda/bin/nvcc) $(shell command -v nvcc 2>/dev/null))
ifeq ($(GPU),0)
GPU_NOTE := GPU=0: building without CUDA, the CPU device stands in
else ifeq ($(NVCC),)
GPU_NOTE := no nvcc: building without CUDA, the CPU device stands in (GPU=0)
else
GPU_NOTE := nvcc is there, but this version has only the CPU device, which stands in (GPU=0)
endif

# ---- targets for people ----

.PHONY: all build help setup demo test test-long asan tsan fuzz lint format format-check bench clean \
    install uninstall golden-update cover \
    build-tests run-tests run-long run-crash test-crash print-warnings

all: ## build libkvtier.a, libkvtier_plugin.so and the program kvtier (default)
	@KVT_NO_INSTALL=1 tests/setup.sh build
	@$(MAKE) $(J) build

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' Makefile
	@echo '  Variables: VARIANT=release|debug|asan|tsan|cover, GPU=0, V=1, KVT_NO_INSTALL=1'

setup: ## install the Debian/Ubuntu packages that building, running and testing need
	@tests/setup.sh build run test

demo: ## set up, build, make a trace and replay it without and with the cache
	@tests/setup.sh build run
	@$(MAKE) $(J) VARIANT=release build
	build/kvtier generate --seed 1 --sessions 4 --scale 15 --out build/demo.kvt.jsonl
	build/kvtier replay build/demo.kvt.jsonl

test: ## set up, build and run the tests (less than two minutes)
	@tests/setup.sh build run test
	@$(MAKE) $(J) build build-tests
	@$(MAKE) run-tests

test-long: ## the tests that take minutes
	@tests/setup.sh build run test
	@$(MAKE) $(J) build build-tests
	@$(MAKE) run-long

test-crash: ## kill, cut the power, flip bits: all of it; takes minutes
	@tests/setup.sh build run test
	@$(MAKE) $(J) build build-tests
	@$(MAKE) run-crash

asan: ## the tests under the address and undefined-behaviour sanitizers
	@$(MAKE) VARIANT=asan test

tsan: ## the tests under the thread sanitizer
	@$(MAKE) VARIANT=tsan test

FUZZ ?= trace
TIME ?= 60
fuzz: ## fuzz a parser: FUZZ=trace|options TIME=seconds
	@tests/setup.sh build
	@tests/fuzz/run.sh $(FUZZ) $(TIME)

cover: ## line coverage of the tests, by folder
	@tests/setup.sh build run test
	@if [ -d build/cover ]; then find build/cover -name '*.gcda' -delete; fi
	@$(MAKE) $(J) VARIANT=cover build build-tests
	@$(MAKE) VARIANT=cover run-tests
	@tests/cover.sh build/cover

lint: ## every check of the source
	@tests/setup.sh build test lint
	@$(MAKE) $(J) VARIANT=release build
	@tests/lint/run.sh

format: ## rewrite the source in the project's format
	@tests/setup.sh lint
	@tests/lint/format.sh --fix

format-check: ## say which files are not in the project's format
	@tests/setup.sh lint
	@tests/lint/format.sh

golden-update: ## rewrite what is made from the ABI's headers, after a change that is meant
	@bash tests/abi/golden.sh update
	@echo 'Look at the difference: engine_plugin/ABI.md says what may change, and how.'

bench: ## how long a match and an insert take
	@tests/setup.sh build run
	@$(MAKE) $(J) VARIANT=release build
	build/kvtier bench match
	build/kvtier bench insert

install: ## install below PREFIX (/usr/local), or below DESTDIR/PREFIX
	@KVT_NO_INSTALL=1 tests/setup.sh build
	@$(MAKE) $(J) VARIANT=release build
	@$(MAKE) VARIANT=release install-files

uninstall: ## remove what `make install` installs
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/,$(INSTALLED))
	@rmdir $(addprefix $(DESTDIR)$(PREFIX)/,$(INSTALLED_FOLDERS)) 2>/dev/null || true

clean: ## remove build/
	rm -rf build

# ---- what they stand on ----

# For tests/lint/clang.sh: one place for the warnings.
print-warnings:
	@echo '$(WARNINGS)'

build: $(PRODUCTS)

build-tests: $(TESTS) $(LONG_TESTS) $(CRASH_TESTS) $(CRASH_WORKER) $(CRASH_CATALOG) \
    $(CRASH_RECORDER) $(BUILD)/tests/abi/old_plugin.so $(CONFORMANCE) $(BROKEN)

# KVT_TEST_SCALE tells tests that can run shorter by how much: 10 means a tenth.
SCALE_release := 1
SCALE_debug := 1
SCALE_asan := 4
SCALE_tsan := 10
SCALE_cover := 4
TEST_ENV = KVT_VARIANT=$(VARIANT) KVTIER=$(abspath $(PROGRAM)) KVT_PLUGIN=$(abspath $(PLUGIN)) \
    KVT_TEST_BUILD=$(abspath $(BUILD)) \
    KVT_CATALOG_PROGRAM=$(abspath $(CATALOG)) KVT_CRASH_WORKER=$(abspath $(CRASH_WORKER)) \
    KVT_CRASH_CATALOG=$(abspath $(CRASH_CATALOG)) \
    KVT_CRASH_RECORDER=$(abspath $(CRASH_RECORDER)) KVT_TEST_SCALE=$${KVT_TEST_SCALE:-$(SCALE_$(VARIANT))}

run-tests:
	@$(TEST_ENV) tests/run.sh $(TESTS) $(CRASH_TESTS) $(TEST_SH)

run-crash:
	@rm -f $(BUILD)/crash/table
	@$(TEST_ENV) KVT_CRASH=long KVT_CRASH_TABLE=$(abspath $(BUILD))/crash/table \
	    KVT_TEST_TIMEOUT=$${KVT_TEST_TIMEOUT:-3600} tests/run.sh $(CRASH_TESTS); \
	    status=$$?; echo; cat $(BUILD)/crash/table; exit $$status

run-long:
	@$(TEST_ENV) KVT_TEST_TIMEOUT=$${KVT_TEST_TIMEOUT:-3600} tests/run.sh $(LONG_TESTS) $(LONG_SH)

$(BUILD)/gpu-note:
	@mkdir -p $(@D)
	@echo '$(GPU_NOTE)' | tee $@

$(BUILD)/engine_plugin/reference/%.o: EXTRA_CFLAGS := $(REF_CFLAGS)

$(BUILD)/%.o: %.c VERSION | $(BUILD)/gpu-note
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS_ALL) $(CFLAGS_ALL) $(EXTRA_CFLAGS) -MMD -MP -c $< -o $@

$(LIB): $(CORE_OBJ) | $(BUILD)/gpu-note
	$(call say,AR,$@)
	@mkdir -p $(@D)
	$(Q)rm -f $@ && $(AR) rcs $@ $(CORE_OBJ)

# No -z defs under a sanitizer: some compilers leave its symbols to the program.
PLUGIN_DEFS := $(if $(filter asan tsan,$(VARIANT)),,-Wl,-z,defs)
$(PLUGIN): $(call obj,$(PLUGIN_SRC)) $(CORE_OBJ) engine_plugin/kvt.map
	$(call say,LINK,$@)
	$(Q)$(CC) -shared $(LDFLAGS_ALL) $(PLUGIN_DEFS) -Wl,--version-script=engine_plugin/kvt.map \
	    -o $@ $(filter %.o,$^) $(XXHASH_A) $(URING)

$(SHARED): $(CORE_OBJ) cache/kvtier.map
	$(call say,LINK,$@)
	$(Q)$(CC) -shared $(LDFLAGS_ALL) $(PLUGIN_DEFS) -Wl,-soname,$(KVT_SO_MAJOR) \
	    -Wl,--version-script=cache/kvtier.map -o $@ $(filter %.o,$^) $(URING)

$(CATALOG): $(call obj,$(CATALOG_SRC) $(CATALOG_SHARED))
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $^ $(LMDB) $(call pkg,--libs,libxxhash)

$(PROGRAM): $(call obj,$(TOOL_SRC)) $(REF_OBJ) $(LIB)
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $(filter %.o,$^) $(LIB) $(PROGRAM_LIBS)

# ---- installing ----

MAN_PAGES := $(wildcard man/*.1)
HEADERS := cache/kvt_status.h cache/kvt_cache.h cache/kvt_store.h engine_plugin/kvt_engine.h
INSTALLED_FOLDERS := lib/kvtier libexec/kvtier include/kvtier
INSTALLED := bin/kvtier lib/libkvtier.a lib/$(KVT_SO) lib/$(KVT_SO_MAJOR) lib/libkvtier.so \
    lib/kvtier/$(notdir $(PLUGIN)) libexec/kvtier/kvtier-catalog $(addprefix include/kvtier/,$(notdir $(HEADERS))) \
    lib/pkgconfig/kvtier.pc $(addprefix share/man/man1/,$(notdir $(MAN_PAGES))) \
    share/bash-completion/completions/kvtier
to = $(DESTDIR)$(PREFIX)/$(1)
# Writes a template with the version and the prefix filled in: $(call fill,FROM,TO).
fill = sed -e 's|@VERSION@|$(KVT_VERSION)|g' -e 's|@PREFIX@|$(PREFIX)|g' $(1) >$(2) && \
    chmod 644 $(2)

.PHONY: install-files
install-files:
	install -d $(sort $(dir $(addprefix $(DESTDIR)$(PREFIX)/,$(INSTALLED))))
	install -m 755 $(PROGRAM) $(call to,bin/kvtier)
	install -m 644 $(LIB) $(call to,lib/libkvtier.a)
	install -m 755 $(SHARED) $(call to,lib/$(KVT_SO))
	ln -sf $(KVT_SO) $(call to,lib/$(KVT_SO_MAJOR))
	ln -sf $(KVT_SO_MAJOR) $(call to,lib/libkvtier.so)
	install -m 755 $(PLUGIN) $(call to,lib/kvtier)
	install -m 755 $(CATALOG) $(call to,libexec/kvtier)
	install -m 644 $(HEADERS) $(call to,include/kvtier)
	$(call fill,share/kvtier.pc.in,$(call to,lib/pkgconfig/kvtier.pc))
	set -e; for page in $(MAN_PAGES); do \
	    $(call fill,$$page,$(call to,share/man/man1/$${page##*/})); done
	install -m 644 share/kvtier.bash $(call to,share/bash-completion/completions/kvtier)

# ---- tests ----

# A test is one program; ref_ tests have the reference engine in them, tool_ tests the tools too.
test_objs = $(if $(filter ref_% tool_%,$(notdir $(1))),$(REF_OBJ)) \
    $(if $(filter tool_%,$(notdir $(1))),$(TOOL_OBJ))
define test_rule
$(1): $(1).o $(call test_objs,$(1)) $(SUPPORT_OBJ) $(LIB)
	$$(call say,LINK,$$@)
	$$(Q)$$(CC) $$(LDFLAGS_ALL) -o $$@ $$(filter %.o,$$^) $(LIB) $$(TEST_LIBS)
endef
$(foreach test,$(TESTS) $(LONG_TESTS),$(eval $(call test_rule,$(test))))

# ---- crash tests ----

$(BUILD)/crash/%.o: %.c VERSION | $(BUILD)/gpu-note
	$(call say,CC,$< with crash points)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS_ALL) -DKVT_CRASH_POINTS $(CFLAGS_ALL) -MMD -MP -c $< -o $@

crash_obj = $(foreach src,$(1),$(if $(filter $(CRASH_SRC),$(src)),$(BUILD)/crash/$(src:.c=.o), \
    $(BUILD)/$(src:.c=.o)))

$(CRASH_WORKER): $(call crash_obj,$(CORE_SRC)) $(CRASH_RIG) $(BUILD)/crash/tests/crash/point.o \
    $(call obj,tests/crash/worker.c)
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $^ $(TEST_LIBS)

$(CRASH_CATALOG): $(call crash_obj,$(CATALOG_SRC) $(CATALOG_SHARED)) \
    $(BUILD)/crash/tests/crash/point.o
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $^ $(LMDB) $(call pkg,--libs,libxxhash)

$(CRASH_RECORDER): $(call obj,tests/crash/recorder.c)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -shared $(LDFLAGS_ALL) -o $@ $^ -ldl

$(CRASH_TESTS): %: %.o $(CRASH_RIG) $(LIB)
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $(filter %.o,$^) $(LIB) $(TEST_LIBS)

$(CONFORMANCE): $(CONF_OBJ)
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $^ -ldl

$(BROKEN): %.so: %.o $(BROKEN_WRAP).o
	$(call say,LINK,$@)
	$(Q)$(CC) -shared $(LDFLAGS_ALL) -o $@ $^ -ldl

# A plug-in compiled from the kept header.
$(BUILD)/tests/abi/old_plugin.so: $(BUILD)/tests/abi/old_plugin.o engine_plugin/kvt.map
	$(call say,LINK,$@)
	$(Q)$(CC) -shared $(LDFLAGS_ALL) -Wl,--version-script=engine_plugin/kvt.map -o $@ $<

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
