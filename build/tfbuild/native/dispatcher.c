/* The dispatcher: chooses the kernels that this CPU can run.
 *
 * TensorFlow loads every library in its tensorflow/core/kernels folder at import, and a load that
 * fails kills the import. So only this file stands there. It needs nothing but baseline x86-64 or
 * armv8-a and glibc 2.17, and its constructor never fails: it opens the first kernel library of the
 * table that fits this process, or leaves TensorFlow with its stock kernels and says why in one line.
 *
 * TENSORWRIGHT_TARGET=off       keep the stock kernels, silently
 * TENSORWRIGHT_TARGET=<target>  consider this target only (it is still checked against the CPU)
 * TENSORWRIGHT_MASK=avx2,fma    act as if the CPU lacked these features; with a name that is none
 *                               the stock kernels stay
 * TF_CPP_MIN_LOG_LEVEL          1 mutes the line about what was loaded, 2 the one about a fallback
 *
 * None of them names a file or takes a check away, so they hold in a setuid process too: what
 * secure_getenv would keep from a stranger is less than what "off" is worth to an operator.
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

struct tw_feature {
  const char* name;
  uint32_t leaf;
  uint32_t subleaf;
  enum tw_register where;
  uint32_t bit;
  uint64_t xcr0; /* register state that the operating system must save */
};

#elif defined(__linux__) && defined(__aarch64__)
#include <sys/auxv.h>
#define OWN_MACHINE EM_AARCH64
#define FIRST_GLIBC "GLIBC_2.17"

struct tw_feature {
  const char* name;
  unsigned long word; /* of the auxiliary vector: AT_HWCAP or AT_HWCAP2 */
  uint32_t bit;
};

#else
#error "the dispatcher asks x86-64 and aarch64 for features: another needs a cpu_has() of its own"
#endif

/* glibc 2.34 moved these into libc under new versions. The old ones are there too, and are all
 * that an older glibc has (in libdl, which is linked for its sake). */
__asm__(".symver dladdr,dladdr@" FIRST_GLIBC);
__asm__(".symver dlerror,dlerror@" FIRST_GLIBC);
__asm__(".symver dlopen,dlopen@" FIRST_GLIBC);
__asm__(".symver dlsym,dlsym@" FIRST_GLIBC);

struct tw_target {
  const char* name;
  const char* library;               /* file name inside the folder below */
  const struct tw_feature* features; /* ends with a feature without a name */
};

#include "dispatcher_targets.h" /* tw_feature_names[], tw_targets[], TW_FOLDER */

#define FOLDER_SIZE 3072 /* bytes of our own folder's path */
#define PATH_SIZE 4096   /* and of a path that starts with it */
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define EXPORTED __attribute__((visibility("default")))

/* The same table for an audit, which reads it from the file. It is an alias, as a name that is
 * exported could be taken by another library, and then that one's table would be asked. */
EXPORTED extern const struct tw_target tensorwright_targets[COUNT(tw_targets)]
    __attribute__((alias("tw_targets")));

static const char* loaded; /* name of the target whose kernels run */
static struct {
  char bytes[2048];
  size_t used;
} reason;            /* why the stock kernels run, or what is wrong with a better library */
static bool damaged; /* a library that this CPU could run cannot be loaded */

EXPORTED const char* tensorwright_loaded(void) { return loaded; }
EXPORTED const char* tensorwright_reason(void) { return reason.bytes; }

__attribute__((format(printf, 1, 2))) static void because(const char* format, ...) {
  const size_t left = sizeof reason.bytes - reason.used;
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(reason.bytes + reason.used, left, format, arguments);
  va_end(arguments);
  if (length <= 0) return;
  const size_t end = reason.used + ((size_t)length < left ? (size_t)length : left - 1);
  /* Names from the environment and paths may hold anything; the reason is one line. */
  for (; reason.used < end; ++reason.used)
    if ((unsigned char)reason.bytes[reason.used] < ' ') reason.bytes[reason.used] = '?';
}

/* The variable's value, or NULL when it is unset or empty. */
static const char* setting(const char* name) {
  const char* value = getenv(name);
  return value != NULL && *value != '\0' ? value : NULL;
}

/* Whether the word of this length is that name. */
static bool is_name(const char* word, size_t length, const char* name) {
  return length == strlen(name) && memcmp(word, name, length) == 0;
}

static bool in_list(const char* list, const char* name) {
  while (list != NULL && *list != '\0') {
    const size_t word = strcspn(list, ",");
    if (is_name(list, word, name)) return true;
    list += word + (list[word] == ',');
  }
  return false;
}

static bool is_feature(const char* word, size_t length) {
  for (size_t i = 0; i < COUNT(tw_feature_names); ++i)
    if (is_name(word, length, tw_feature_names[i])) return true;
  return false;
}

/* Whether every name of the mask is a feature's. What was meant by another cannot be told, and
 * whoever tries a fallback must not get the tuned kernels instead. */
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

/* ---- the CPU ---- */

#if defined(__x86_64__)

/* XCR0: the register state that the operating system saves. 0 when it cannot be asked. */
__attribute__((target("xsave"))) static uint64_t saved_state(void) {
  uint32_t eax, ebx, ecx, edx;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & bit_OSXSAVE)) return 0;
  return _xgetbv(0);
}

/* False for a leaf or subleaf that the CPU does not have: what CPUID answers there is not always
 * zero. Leaf 7 is the one whose number of subleaves differs between CPUs; it says so itself. */
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

/* Linux shows a process the features whose registers it saves, and no others. */
static bool cpu_has(const struct tw_feature* feature) {
  return (getauxval(feature->word) >> feature->bit & 1) != 0;
}

#endif

/* Whether the CPU has all that the target needs; the reason names what is missing. */
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

/* ---- the process ---- */

/* Placement prefers a kernel's priority to a device's, so a raised CPU kernel would take work from
 * a GPU. TensorFlow itself knows how it was built; one that does not say is not trusted. */
static bool built_for_cpu_only(void) {
  static const char* const questions[] = {
      "_ZN10tensorflow19IsGoogleCudaEnabledEv", /* tensorflow/core/util/port.h */
      "_ZN10tensorflow15IsBuiltWithROCmEv",
  };
  void* framework = dlopen("libtensorflow_framework.so.2", RTLD_LAZY | RTLD_NOLOAD);
  if (framework == NULL) return true; /* opened by a tool, not by TensorFlow */
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

/* As TensorFlow's load_library.py recognises one: x.so or x.so.1 */
static bool is_library(const char* name) {
  const size_t length = strlen(name);
  return strstr(name, ".so.") != NULL || (length > 3 && strcmp(name + length - 3, ".so") == 0);
}

/* Device plugins are loaded after the kernels: here they can only be seen lying ready. */
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

/* ---- the kernel library ---- */

/* Whether `bytes` from `offset` on lie within a file of this size. */
static bool inside(uint64_t offset, uint64_t bytes, uint64_t size) {
  return offset <= size && bytes <= size - offset;
}

static bool read_at(int file, uint64_t offset, void* to, size_t bytes) {
  return pread(file, to, bytes, (off_t)offset) == (ssize_t)bytes;
}

/* The table of sections is a linker's last word. Zeros in its place are what a file system leaves
 * of bytes that never reached the disk. */
static bool has_its_end(int file, const Elf64_Ehdr* header, uint64_t size) {
  Elf64_Shdr names;
  return inside(header->e_shoff, (uint64_t)header->e_shnum * sizeof names, size) &&
         read_at(file, header->e_shoff + header->e_shstrndx * sizeof names, &names, sizeof names) &&
         names.sh_type == SHT_STRTAB;
}

static bool has_its_segments(int file, const Elf64_Ehdr* header, uint64_t size) {
  Elf64_Phdr segment;
  for (uint64_t i = 0; i < header->e_phnum; ++i)
    if (!read_at(file, header->e_phoff + i * sizeof segment, &segment, sizeof segment) ||
        !inside(segment.p_offset, segment.p_filesz, size))
      return false;
  return true;
}

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
  const bool whole =
      has_its_end(file, &header, (uint64_t)size) && has_its_segments(file, &header, (uint64_t)size);
  return whole ? NULL : "it is truncated";
}

/* What is wrong with the file, or NULL. glibc maps a truncated library without a word, and the
 * first touch of what is missing is a SIGBUS: so this is looked at before dlopen. Changed bytes
 * within a whole file are not found: that would take a hash of it all at every import. */
static const char* file_fault(const char* path) {
  const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not hold us */
  if (file < 0) return strerror(errno);
  const char* fault = elf_fault(file);
  close(file);
  return fault;
}

/* The library's handle, never closed again; NULL with a reason. An older glibc or libstdc++ than
 * the library was linked for is found here, before any of its code has run. */
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

/* ---- the choice ---- */

/* Where the dispatcher lies, without the last slash. False when that cannot be told. */
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

/* A target has one name: skylake_avx512 to archspec, skylake.avx512 in the wheel's version. */
static bool same_name(const char* one, const char* other) {
  for (;; ++one, ++other) {
    const bool between = *one != '\0' && *other != '\0' && strchr("_.-", *one) != NULL &&
                         strchr("_.-", *other) != NULL;
    if (*one != *other && !between) return false;
    if (*one == '\0') return true;
  }
}

/* The first target of the table that fits, and the handle of its library; NULL with the reasons. */
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

/* One line on stderr in one write, unless TensorFlow was told to keep quiet at this level. */
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
  if (write(STDERR_FILENO, line, size) < 0) return; /* nobody listens */
}

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
    if (!damaged) reason.bytes[0] = '\0'; /* a lesser CPU is nothing to report */
    say_loaded(library);
  } else {
    say(1, "tensorwright: TensorFlow runs with its stock kernels: %s\n", reason.bytes);
  }
}
