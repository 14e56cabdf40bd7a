/* The dispatcher: chooses the kernels that this CPU can run.
 *
 * TensorFlow loads every library in its tensorflow/core/kernels folder at import, and a load that
 * fails kills the import. So only this file stands there. It needs nothing but baseline x86-64 and
 * glibc 2.17, and its constructor never fails: it opens the first kernel library of the table that
 * fits this process, or leaves TensorFlow with its stock kernels and says why in one line.
 *
 * TENSORWRIGHT_TARGET=off       keep the stock kernels, silently
 * TENSORWRIGHT_TARGET=<target>  consider this target only (it is still checked against the CPU)
 * TENSORWRIGHT_MASK=avx2,fma    act as if the CPU lacked these features
 * TF_CPP_MIN_LOG_LEVEL          1 mutes the line about what was loaded, 2 the one about a fallback
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

#if !defined(__linux__) || !defined(__x86_64__)
#error "the dispatcher tests features with CPUID: another architecture needs a cpu_has() of its own"
#endif
#include <cpuid.h>

/* glibc 2.34 moved these into libc under new versions. The old ones are there too, and are all
 * that an older glibc has (in libdl, which is linked for its sake). */
__asm__(".symver dladdr,dladdr@GLIBC_2.2.5");
__asm__(".symver dlerror,dlerror@GLIBC_2.2.5");
__asm__(".symver dlopen,dlopen@GLIBC_2.2.5");
__asm__(".symver dlsym,dlsym@GLIBC_2.2.5");

enum tw_register { TW_EAX, TW_EBX, TW_ECX, TW_EDX };

struct tw_feature {
  const char *name;
  uint32_t leaf;
  uint32_t subleaf;
  enum tw_register where;
  uint32_t bit;
  uint64_t xcr0; /* register state that the operating system must save */
};

struct tw_target {
  const char *name;
  const char *library;               /* file name inside the folder below */
  const struct tw_feature *features; /* ends with a feature without a name */
};

#include "dispatcher_targets.h" /* tw_targets[], TW_FOLDER */

#define FOLDER_SIZE 3072 /* bytes of our own folder's path */
#define PATH_SIZE 4096   /* and of a path that starts with it */
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define EXPORTED __attribute__((visibility("default")))

static const char *loaded; /* name of the target whose kernels run */
static struct {
  char bytes[2048];
  size_t used;
} reason; /* why the stock kernels run; empty once a target is loaded */

EXPORTED const char *tensorwright_loaded(void) { return loaded; }
EXPORTED const char *tensorwright_reason(void) { return reason.bytes; }

__attribute__((format(printf, 1, 2))) static void because(const char *format, ...) {
  const size_t left = sizeof reason.bytes - reason.used;
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(reason.bytes + reason.used, left, format, arguments);
  va_end(arguments);
  if (length > 0) reason.used += (size_t)length < left ? (size_t)length : left - 1;
}

/* The variable's value, or NULL when it is unset or empty. */
static const char *setting(const char *name) {
  const char *value = getenv(name);
  return value != NULL && *value != '\0' ? value : NULL;
}

static bool in_list(const char *list, const char *name) {
  const size_t length = strlen(name);
  while (list != NULL && *list != '\0') {
    const size_t word = strcspn(list, ",");
    if (word == length && memcmp(list, name, length) == 0) return true;
    list += word + (list[word] == ',');
  }
  return false;
}

/* ---- the CPU ---- */

/* XCR0: the register state that the operating system saves. 0 when it cannot be asked. */
static uint64_t saved_state(void) {
  uint32_t eax, ebx, ecx, edx;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & bit_OSXSAVE)) return 0;
  uint32_t low, high;
  __asm__ volatile(".byte 0x0f, 0x01, 0xd0" /* xgetbv */ : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t)high << 32 | low;
}

static bool cpu_has(const struct tw_feature *feature) {
  uint32_t registers[4];
  if (!__get_cpuid_count(feature->leaf, feature->subleaf, &registers[TW_EAX], &registers[TW_EBX],
                         &registers[TW_ECX], &registers[TW_EDX]))
    return false;
  return (registers[feature->where] >> feature->bit & 1) != 0 &&
         (saved_state() & feature->xcr0) == feature->xcr0;
}

/* Whether the CPU has all that the target needs; the reason names what is missing. */
static bool cpu_runs(const struct tw_target *target) {
  const char *mask = setting("TENSORWRIGHT_MASK");
  bool all = true;
  for (const struct tw_feature *feature = target->features; feature->name != NULL; ++feature) {
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
  static const char *const questions[] = {
      "_ZN10tensorflow19IsGoogleCudaEnabledEv", /* tensorflow/core/util/port.h */
      "_ZN10tensorflow15IsBuiltWithROCmEv",
  };
  void *framework = dlopen("libtensorflow_framework.so.2", RTLD_LAZY | RTLD_NOLOAD);
  if (framework == NULL) return true; /* opened by a tool, not by TensorFlow */
  for (size_t i = 0; i < COUNT(questions); ++i) {
    bool (*ask)(void);
    *(void **)&ask = dlsym(framework, questions[i]);
    if (ask == NULL || ask()) {
      because(ask == NULL ? "this TensorFlow does not say whether it is a GPU build"
                          : "this TensorFlow is a GPU build");
      return false;
    }
  }
  return true;
}

/* As TensorFlow's load_library.py recognises one: x.so or x.so.1 */
static bool is_library(const char *name) {
  const size_t length = strlen(name);
  return strstr(name, ".so.") != NULL || (length > 3 && strcmp(name + length - 3, ".so") == 0);
}

/* Device plugins are loaded after the kernels: here they can only be seen lying ready. */
static bool no_device_plugins(const char *folder) {
  if (setting("TF_PLUGGABLE_DEVICE_LIBRARY_PATH") != NULL) {
    because("TF_PLUGGABLE_DEVICE_LIBRARY_PATH adds a device");
    return false;
  }
  char path[PATH_SIZE];
  snprintf(path, sizeof path, "%s/../../../tensorflow-plugins", folder);
  DIR *plugins = opendir(path);
  if (plugins == NULL) return true;
  bool none = true;
  for (const struct dirent *entry; none && (entry = readdir(plugins)) != NULL;)
    none = !is_library(entry->d_name);
  closedir(plugins);
  if (!none) because("a device plugin is installed in tensorflow-plugins");
  return none;
}

/* ---- the kernel library ---- */

static const char *elf_fault(int file) {
  Elf64_Ehdr header;
  const off_t end = lseek(file, 0, SEEK_END);
  if (end < 0 || pread(file, &header, sizeof header, 0) != (ssize_t)sizeof header ||
      memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_phentsize != sizeof(Elf64_Phdr))
    return "it is not a library";
  const uint64_t size = (uint64_t)end;
  const uint64_t sections = (uint64_t)header.e_shnum * header.e_shentsize;
  if (header.e_shoff > size || sections > size - header.e_shoff) return "it is truncated";
  for (uint64_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    const uint64_t offset = header.e_phoff + i * sizeof segment;
    if (pread(file, &segment, sizeof segment, (off_t)offset) != (ssize_t)sizeof segment ||
        segment.p_offset > size || segment.p_filesz > size - segment.p_offset)
      return "it is truncated";
  }
  return NULL;
}

/* What is wrong with the file, or NULL. glibc maps a truncated library without a word, and the
 * first touch of what is missing is a SIGBUS: so this is looked at before dlopen. */
static const char *file_fault(const char *path) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return strerror(errno);
  const char *fault = elf_fault(file);
  close(file);
  return fault;
}

/* The library's handle, never closed again; NULL with a reason. An older glibc or libstdc++ than
 * the library was linked for is found here, before any of its code has run. */
static void *open_library(const char *folder, const struct tw_target *target) {
  char path[PATH_SIZE];
  const int length = snprintf(path, sizeof path, "%s/" TW_FOLDER "/%s", folder, target->library);
  const char *fault = length < (int)sizeof path ? file_fault(path) : "its path is too long";
  void *library = fault == NULL ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  if (library == NULL && fault == NULL) fault = dlerror();
  if (library == NULL) because("%s cannot be loaded: %s", target->library, fault);
  return library;
}

/* ---- the choice ---- */

/* Where the dispatcher lies, without the last slash. False when that cannot be told. */
static bool find_own_folder(char folder[static FOLDER_SIZE]) {
  Dl_info own;
  if (dladdr((const void *)&loaded, &own) == 0 || own.dli_fname == NULL) return false;
  const char *slash = strrchr(own.dli_fname, '/');
  const size_t length = slash != NULL ? (size_t)(slash - own.dli_fname) : 0;
  if (slash == NULL || length >= FOLDER_SIZE) return false;
  memcpy(folder, own.dli_fname, length);
  folder[length] = '\0';
  return true;
}

/* The first target of the table that fits, and the handle of its library; NULL with the reasons. */
static void *choose(const char *wanted, const char *folder, const struct tw_target **chosen) {
  bool known = false;
  for (size_t i = 0; i < COUNT(tw_targets); ++i) {
    *chosen = &tw_targets[i];
    if (wanted != NULL && strcmp(wanted, (*chosen)->name) != 0) continue;
    known = true;
    if (reason.used != 0) because("; ");
    void *library = cpu_runs(*chosen) ? open_library(folder, *chosen) : NULL;
    if (library != NULL) return library;
  }
  if (!known) because("this wheel has no kernels for TENSORWRIGHT_TARGET=%s", wanted);
  return NULL;
}

/* One line on stderr in one write, unless TensorFlow was told to keep quiet at this level. */
__attribute__((format(printf, 2, 3))) static void say(int level, const char *format, ...) {
  const char *least = setting("TF_CPP_MIN_LOG_LEVEL");
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

static void say_loaded(void *library) {
  char kernels[32] = "kernels";
  int (*count)(void);
  *(void **)&count = dlsym(library, "tensorwright_kernel_count");
  if (count != NULL) snprintf(kernels, sizeof kernels, "%d kernels", count());
  say(0,
      "tensorwright: %s built for %s replace the stock ones; TensorFlow's own line about "
      "rebuilding speaks of the rest\n",
      kernels, loaded);
}

__attribute__((constructor)) static void dispatch(void) {
  const int saved_errno = errno;
  const char *wanted = setting("TENSORWRIGHT_TARGET");
  if (wanted != NULL && strcmp(wanted, "off") == 0) {
    because("TENSORWRIGHT_TARGET=off");
    return;
  }
  char folder[FOLDER_SIZE];
  const struct tw_target *chosen = NULL;
  void *library = NULL;
  if (!find_own_folder(folder))
    because("the dispatcher cannot tell where it lies");
  else if (built_for_cpu_only() && no_device_plugins(folder))
    library = choose(wanted, folder, &chosen);
  if (library != NULL) {
    loaded = chosen->name;
    reason.bytes[0] = '\0';
    say_loaded(library);
  } else {
    say(1, "tensorwright: TensorFlow runs with its stock kernels: %s\n", reason.bytes);
  }
  errno = saved_errno;
}
