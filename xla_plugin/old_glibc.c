// Lets a module that was linked on a new system load on an old one.
//
// The C++ library is linked into the module, and its archive asks for the
// newest versions of a few functions of glibc that older versions have under
// other names. The linker sends those calls here (--wrap, see BUILD), and they
// go on to the old names. What is defined here is local to the module.
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#if defined(__x86_64__)
#define BK_OLDEST "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define BK_OLDEST "GLIBC_2.17"
#else
#error "which is the first version of glibc on this platform?"
#endif

// The linker decides these names.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)

// Declares `old_name`, the function in its oldest version and by the second
// name that it has there: a call by the first would come back here.
#define BK_OLD(result, name, arguments)                     \
  __asm__(".symver old_" #name ", __" #name "@" BK_OLDEST); \
  extern result old_##name arguments

// In libpthread until 2.33, which every Python has loaded; then in libc.
BK_OLD(int, pthread_once, (int*, void (*)(void)));
BK_OLD(int, pthread_key_create, (unsigned*, void (*)(void*)));
BK_OLD(void*, pthread_getspecific, (unsigned));
BK_OLD(int, pthread_setspecific, (unsigned, const void*));

int __wrap_pthread_once(int* control, void (*run)(void)) {
  return old_pthread_once(control, run);
}
int __wrap_pthread_key_create(unsigned* key, void (*destroy)(void*)) {
  return old_pthread_key_create(key, destroy);
}
void* __wrap_pthread_getspecific(unsigned key) {
  return old_pthread_getspecific(key);
}
int __wrap_pthread_setspecific(unsigned key, const void* value) {
  return old_pthread_setspecific(key, value);
}

// Has no second name. The C++ library deletes its one key when the process
// ends, with which the key ends too.
int __wrap_pthread_key_delete(unsigned key) {
  (void)key;
  return 0;
}

// 2.33 made this a function of its own.
extern int __fxstat64(int version, int file, void* status);
int __wrap_fstat64(int file, void* status) {
#if defined(__x86_64__)
  return __fxstat64(1, file, status);
#else
  return __fxstat64(0, file, status);
#endif
}

// Since 2.36. Only std::random_device asks for it, which nothing here uses.
uint32_t __wrap_arc4random(void) {
  uint32_t value;
  if (getentropy(&value, sizeof value) != 0) __builtin_trap();
  return value;
}

// Since 2.32: "threads may be running", so that counts are always atomic.
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;

// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
