/* The dispatcher: loads the kernel library that fits the CPU.
 *
 * TensorFlow loads every library in its folder tensorflow/core/kernels at import. If one fails to
 * load, the import fails. So the wheel adds only the dispatcher to this folder. It needs no more
 * than baseline x86-64 or armv8-a and glibc 2.17, and its constructor never fails. It opens the
 * first kernel library of the table that fits this process. If none fits, TensorFlow keeps its
 * stock kernels, and the dispatcher prints the reason in one line.
 *
 * TENSORWRIGHT_TARGET=off       keeps the stock kernels, silently
 * TENSORWRIGHT_TARGET=<target>  considers only this target, which must still fit the CPU
 * TENSORWRIGHT_MASK=avx2,fma    acts as if the CPU lacked these features; an unknown name keeps the
 *                               stock kernels
 * TF_CPP_MIN_LOG_LEVEL          1 mutes the line about what was loaded, 2 also one about a fallback
 *
 * These variables also apply in setuid processes, without secure_getenv: none names a file or
 * disables a check, and operators need "off".
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__linux__) && defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#define OWN_MACHINE EM_X86_64
#define FIRST_GLIBC "GLIBC_2.2.5"

enum tw_register { TW_EAX, TW_EBX, TW_ECX, TW_EDX };

/* A CPU feature: a bit of a register that CPUID returns. */
struct tw_feature {
  const char* name;
  uint32_t leaf;
  uint32_t subleaf;
  enum tw_register where;
  uint32_t bit;
  uint64_t xcr0; /* register state that the OS must save, as bits of XCR0 */
};

#elif defined(__linux__) && defined(__aarch64__)
#include <sys/auxv.h>
#define OWN_MACHINE EM_AARCH64
#define FIRST_GLIBC "GLIBC_2.17"

/* A CPU feature: a bit of the auxiliary vector. */
struct tw_feature {
  const char* name;
  unsigned long word; /* AT_HWCAP or AT_HWCAP2 */
  uint32_t bit;
};

#else
#error "the dispatcher asks x86-64 and aarch64 for features: another needs a cpu_has() of its own"
#endif

/* Links these functions to their oldest symbol version. glibc 2.34 moved them from libdl to libc
 * and added a new version; it has both. Older glibcs have only the old one, so libdl is linked. */
__asm__(".symver dladdr,dladdr@" FIRST_GLIBC);
__asm__(".symver dlerror,dlerror@" FIRST_GLIBC);
__asm__(".symver dlopen,dlopen@" FIRST_GLIBC);
__asm__(".symver dlsym,dlsym@" FIRST_GLIBC);

/* A kernel library of the wheel, and the CPU features that it needs. */
struct tw_target {
  const char* name;
  const char* library;               /* file name in TW_FOLDER */
  const struct tw_feature* features; /* ends with a feature whose name is NULL */
};

#include "dispatcher_targets.h" /* tw_feature_names[], tw_targets[], TW_FOLDER */

#define FOLDER_SIZE 3072 /* bytes for the path of the dispatcher's folder */
#define PATH_SIZE 4096   /* bytes for a path that starts with it */
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define EXPORTED __attribute__((visibility("default")))

/* Exports the table, so that audits can read it from the file. It is an alias: another library
 * could override an exported symbol, and then the dispatcher would use that library's table. */
EXPORTED extern const struct tw_target tensorwright_targets[COUNT(tw_targets)]
    __attribute__((alias("tw_targets")));

static const char* loaded; /* name of the target whose library is loaded, or NULL */
static struct {
  char bytes[2048];
  size_t used;
} reason;            /* why the stock kernels run, or why a better library cannot be loaded */
static bool damaged; /* whether a library that this CPU can run cannot be loaded */

/* For other programs: the name of the loaded target or NULL, and the reason or "". */
EXPORTED const char* tensorwright_loaded(void) { return loaded; }
EXPORTED const char* tensorwright_reason(void) { return reason.bytes; }

/* Appends formatted text to the reason. */
__attribute__((format(printf, 1, 2))) static void because(const char* format, ...) {
  const size_t left = sizeof reason.bytes - reason.used;
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(reason.bytes + reason.used, left, format, arguments);
  va_end(arguments);
  if (length <= 0) return;
  const size_t end = reason.used + ((size_t)length < left ? (size_t)length : left - 1);
  /* The reason must be one line, but variables and paths may contain control characters. */
  for (; reason.used < end; ++reason.used)
    if ((unsigned char)reason.bytes[reason.used] < ' ') reason.bytes[reason.used] = '?';
}

/* Returns the value of an environment variable, or NULL if it is unset or empty. */
static const char* setting(const char* name) {
  const char* value = getenv(name);
  return value != NULL && *value != '\0' ? value : NULL;
}

/* Whether a word of this length equals a name. */
static bool is_name(const char* word, size_t length, const char* name) {
  return length == strlen(name) && memcmp(word, name, length) == 0;
}

/* Whether a comma-separated list contains a name. */
static bool in_list(const char* list, const char* name) {
  while (list != NULL && *list != '\0') {
    const size_t word = strcspn(list, ",");
    if (is_name(list, word, name)) return true;
    list += word + (list[word] == ',');
  }
  return false;
}

/* Whether a word is the name of a known CPU feature. */
static bool is_feature(const char* word, size_t length) {
  for (size_t i = 0; i < COUNT(tw_feature_names); ++i)
    if (is_name(word, length, tw_feature_names[i])) return true;
  return false;
}

/* Whether the mask contains only known features. With a misspelled name, a user who tests a
 * fallback would get the tuned kernels instead. */
static bool mask_is_known(void) {
  const char* word = setting("TENSORWRIGHT_MASK");
  while (word != NULL && *word != '\0') {
    const size_t length = strcspn(word, ",");
    if (length != 0 && !is_feature(word, length)) {
      because("TENSORWRIGHT_MASK names \"%.*s\", which is no CPU feature that is known",
              (int)(length < 64 ? length : 64), word);
      return false;
    }
    word += length + (word[length] == ',');
  }
  return true;
}

/* ---- The CPU ---- */

#if defined(__x86_64__)

/* Returns XCR0, the register state that the OS saves, or 0 if it cannot be read. */
__attribute__((target("xsave"))) static uint64_t saved_state(void) {
  uint32_t eax, ebx, ecx, edx;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & bit_OSXSAVE)) return 0;
  return _xgetbv(0);
}

/* Reads the registers of a feature. Returns false for a leaf or subleaf that the CPU does not have,
 * for which CPUID may return bits that are not zero. Only the number of subleaves of leaf 7 differs
 * between CPUs; its subleaf 0 gives it in EAX. */
static bool cpuid(const struct tw_feature* feature, uint32_t registers[static 4]) {
  const uint32_t leaf = feature->leaf, subleaf = feature->subleaf;
  uint32_t *eax = &registers[TW_EAX], *ebx = &registers[TW_EBX];
  uint32_t *ecx = &registers[TW_ECX], *edx = &registers[TW_EDX];
  if (leaf == 7 && (!__get_cpuid_count(7, 0, eax, ebx, ecx, edx) || *eax < subleaf)) return false;
  return __get_cpuid_count(leaf, subleaf, eax, ebx, ecx, edx) != 0;
}

static bool cpu_has(const struct tw_feature* feature) {
  uint32_t registers[4];
  return cpuid(feature, registers) && (registers[feature->where] >> feature->bit & 1) != 0 &&
         (saved_state() & feature->xcr0) == feature->xcr0;
}

#else

/* Linux reports only features whose registers it saves. */
static bool cpu_has(const struct tw_feature* feature) {
  return (getauxval(feature->word) >> feature->bit & 1) != 0;
}

#endif

/* Whether the CPU has all features that a target needs. Adds missing ones to the reason. */
static bool cpu_runs(const struct tw_target* target) {
  const char* mask = setting("TENSORWRIGHT_MASK");
  bool all = true;
  for (const struct tw_feature* feature = target->features; feature->name != NULL; ++feature) {
    if (!in_list(mask, feature->name) && cpu_has(feature)) continue;
    if (all)
      because("%s needs %s", target->name, feature->name);
    else
      because(", %s", feature->name);
    all = false;
  }
  if (!all) because(", which this CPU lacks%s", mask ? " (TENSORWRIGHT_MASK is set)" : "");
  return all;
}

/* ---- The process ---- */

/* Whether TensorFlow was built without support for GPUs. TensorFlow's placer weighs the priority of
 * kernels before that of devices, so tuned CPU kernels would take work from a GPU. Returns false if
 * TensorFlow does not say how it was built. */
static bool built_for_cpu_only(void) {
  static const char* const questions[] = {
      "_ZN10tensorflow19IsGoogleCudaEnabledEv", /* tensorflow/core/util/port.h */
      "_ZN10tensorflow15IsBuiltWithROCmEv",
  };
  void* framework = dlopen("libtensorflow_framework.so.2", RTLD_LAZY | RTLD_NOLOAD);
  if (framework == NULL) return true; /* a tool opened the dispatcher, not TensorFlow */
  for (size_t i = 0; i < COUNT(questions); ++i) {
    bool (*ask)(void);
    *(void**)&ask = dlsym(framework, questions[i]);
    if (ask == NULL || ask()) {
      because(ask == NULL ? "this TensorFlow does not say whether it is a GPU build"
                          : "this TensorFlow is a GPU build");
      return false;
    }
  }
  return true;
}

/* Whether TensorFlow's load_library.py regards a file as a library, such as x.so or x.so.1. */
static bool is_library(const char* name) {
  const size_t length = strlen(name);
  return strstr(name, ".so.") != NULL || (length > 3 && strcmp(name + length - 3, ".so") == 0);
}

/* Whether no device plugin is installed. TensorFlow loads plugins after the kernels, so this can
 * only look for their files. `folder` is the dispatcher's. */
static bool no_device_plugins(const char* folder) {
  if (setting("TF_PLUGGABLE_DEVICE_LIBRARY_PATH") != NULL) {
    because("TF_PLUGGABLE_DEVICE_LIBRARY_PATH adds a device");
    return false;
  }
  char path[PATH_SIZE];
  snprintf(path, sizeof path, "%s/../../../tensorflow-plugins", folder);
  DIR* plugins = opendir(path);
  if (plugins == NULL) return true;
  bool none = true;
  for (const struct dirent* entry; none && (entry = readdir(plugins)) != NULL;)
    none = !is_library(entry->d_name);
  closedir(plugins);
  if (!none) because("a device plugin is installed in tensorflow-plugins");
  return none;
}

/* ---- The kernel library ---- */

/* Whether `bytes` bytes from `offset` on lie within a file of this size. */
static bool inside(uint64_t offset, uint64_t bytes, uint64_t size) {
  return offset <= size && bytes <= size - offset;
}

/* Reads `bytes` bytes from `offset` on. Returns false if there are fewer. */
static bool read_at(int file, uint64_t offset, void* to, size_t bytes) {
  return pread(file, to, bytes, (off_t)offset) == (ssize_t)bytes;
}

/* Whether the section header table, which is at the end of the file, is complete. Reads one entry,
 * because the table may be all zeros if its bytes never reached the disk. */
static bool has_section_table(int file, const Elf64_Ehdr* header, uint64_t size) {
  Elf64_Shdr names;
  return inside(header->e_shoff, (uint64_t)header->e_shnum * sizeof names, size) &&
         read_at(file, header->e_shoff + header->e_shstrndx * sizeof names, &names, sizeof names) &&
         names.sh_type == SHT_STRTAB;
}

/* Whether all segments lie within the file. */
static bool has_all_segments(int file, const Elf64_Ehdr* header, uint64_t size) {
  Elf64_Phdr segment;
  for (uint64_t i = 0; i < header->e_phnum; ++i)
    if (!read_at(file, header->e_phoff + i * sizeof segment, &segment, sizeof segment) ||
        !inside(segment.p_offset, segment.p_filesz, size))
      return false;
  return true;
}

/* Returns what is wrong with an ELF file, or NULL. */
static const char* elf_fault(int file) {
  Elf64_Ehdr header;
  const off_t size = lseek(file, 0, SEEK_END);
  if (size < 0 || !read_at(file, 0, &header, sizeof header) ||
      memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
    return "it is not a library";
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
      header.e_machine != OWN_MACHINE)
    return "it is built for another architecture";
  if (header.e_type != ET_DYN || header.e_phentsize != sizeof(Elf64_Phdr))
    return "it is not a library";
  const bool whole = has_section_table(file, &header, (uint64_t)size) &&
                     has_all_segments(file, &header, (uint64_t)size);
  return whole ? NULL : "it is truncated";
}

/* Returns what is wrong with a file, or NULL. dlopen maps a truncated library without an error, and
 * the first access to a missing page raises SIGBUS, so this must be checked before. Changed bytes
 * are not found: this would need a hash of the whole file at each import. */
static const char* file_fault(const char* path) {
  const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* do not wait for a pipe */
  if (file < 0) return strerror(errno);
  const char* fault = elf_fault(file);
  close(file);
  return fault;
}

/* Opens the library of a target. Returns its handle, which is never closed, or NULL with a reason.
 * RTLD_NOW finds a glibc or libstdc++ that is too old before any code of the library runs. */
static void* open_library(const char* folder, const struct tw_target* target) {
  char path[PATH_SIZE];
  const int length = snprintf(path, sizeof path, "%s/" TW_FOLDER "/%s", folder, target->library);
  const char* fault = length < (int)sizeof path ? file_fault(path) : "its path is too long";
  void* library = fault == NULL ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  if (library == NULL && fault == NULL) fault = dlerror();
  if (library != NULL) return library;
  because("%s cannot be loaded: %s", target->library, fault);
  damaged = true;
  return NULL;
}

/* ---- The choice ---- */

/* Finds the dispatcher's folder, without the last slash. Returns false if it is not known. */
static bool find_own_folder(char folder[static FOLDER_SIZE]) {
  Dl_info own;
  if (dladdr((const void*)&loaded, &own) == 0 || own.dli_fname == NULL) return false;
  const char* slash = strrchr(own.dli_fname, '/');
  const size_t length = slash != NULL ? (size_t)(slash - own.dli_fname) : 0;
  if (slash == NULL || length >= FOLDER_SIZE) return false;
  memcpy(folder, own.dli_fname, length);
  folder[length] = '\0';
  return true;
}

/* Whether two names of targets are equal if '_', '.' and '-' are: archspec says skylake_avx512, the
 * wheel's version skylake.avx512. */
static bool same_name(const char* one, const char* other) {
  for (;; ++one, ++other) {
    const bool between = *one != '\0' && *other != '\0' && strchr("_.-", *one) != NULL &&
                         strchr("_.-", *other) != NULL;
    if (*one != *other && !between) return false;
    if (*one == '\0') return true;
  }
}

/* Opens the library of the first target that fits. Returns its handle, or NULL with the reasons.
 * Considers only the target `wanted`, unless it is NULL. */
static void* choose(const char* wanted, const char* folder, const struct tw_target** chosen) {
  bool known = false;
  for (size_t i = 0; i < COUNT(tw_targets); ++i) {
    *chosen = &tw_targets[i];
    if (wanted != NULL && !same_name(wanted, (*chosen)->name)) continue;
    known = true;
    const size_t before = reason.used;
    if (before != 0) because("; ");
    void* library = cpu_runs(*chosen) ? open_library(folder, *chosen) : NULL;
    if (library == NULL) continue;
    reason.bytes[reason.used = before] = '\0';
    return library;
  }
  if (known) return NULL;
  because("this wheel has no kernels for TENSORWRIGHT_TARGET=%.64s, only for", wanted);
  for (size_t i = 0; i < COUNT(tw_targets); ++i)
    because("%s %s", i == 0 ? "" : ",", tw_targets[i].name);
  return NULL;
}

/* Writes a line to stderr with a single write, unless TF_CPP_MIN_LOG_LEVEL mutes this level. */
__attribute__((format(printf, 2, 3))) static void say(int level, const char* format, ...) {
  const char* least = setting("TF_CPP_MIN_LOG_LEVEL");
  if (least != NULL && *least > '0' + level && *least <= '9') return;
  char line[sizeof reason.bytes + 256];
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  if (length <= 0) return;
  const size_t size = (size_t)length < sizeof line ? (size_t)length : sizeof line - 1;
  if (write(STDERR_FILENO, line, size) < 0) return; /* ignores errors */
}

/* Reports which library was loaded, and any better one that cannot be. */
static void say_loaded(void* library) {
  char kernels[32] = "kernels";
  int (*count)(void);
  *(void**)&count = dlsym(library, "tensorwright_kernel_count");
  if (count != NULL) snprintf(kernels, sizeof kernels, "%d kernels", count());
  say(0,
      "tensorwright: %s built for %s replace the stock ones; TensorFlow's own line about "
      "rebuilding speaks of the rest\n",
      kernels, loaded);
  if (damaged) say(1, "tensorwright: better ones are in the wheel, but %s\n", reason.bytes);
}

/* Chooses and opens a kernel library when TensorFlow loads the dispatcher. */
__attribute__((constructor)) static void dispatch(void) {
  const char* wanted = setting("TENSORWRIGHT_TARGET");
  if (wanted != NULL && strcmp(wanted, "off") == 0) {
    because("TENSORWRIGHT_TARGET=off");
    return;
  }
  char folder[FOLDER_SIZE];
  const struct tw_target* chosen = NULL;
  void* library = NULL;
  if (!find_own_folder(folder))
    because("the dispatcher cannot tell where it lies");
  else if (mask_is_known() && built_for_cpu_only() && no_device_plugins(folder))
    library = choose(wanted, folder, &chosen);
  if (library != NULL) {
    loaded = chosen->name;
    if (!damaged) reason.bytes[0] = '\0'; /* lacking CPU features are not reported */
    say_loaded(library);
  } else {
    say(1, "tensorwright: TensorFlow runs with its stock kernels: %s\n", reason.bytes);
  }
}
