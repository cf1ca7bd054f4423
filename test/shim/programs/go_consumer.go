// A Go program that loads the driver by itself, as Ollama does: goroutines on threads that Go starts and stops,
// preempted by SIGURG, collecting garbage, starting other programs. Prints what it did; exits 0 if all was right.
//
//	go_consumer LIBCUDA ROUNDS
package main

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static struct {
  int (*init)(unsigned);
  int (*count)(int *);
  int (*retain)(void **, int);
  int (*current)(void *);
  int (*alloc)(uint64_t *, size_t);
  int (*release)(uint64_t);
  int (*to)(uint64_t, const void *, size_t);
  int (*from)(void *, uint64_t, size_t);
  int (*module)(void **, const void *);
  int (*unload)(void *);
  int (*function)(void **, void *, const char *);
  int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
  int (*synchronize)(void);
} cuda;

static const char *load(const char *path) {
  void *library = dlopen(path, RTLD_NOW);
  if (library == NULL) return dlerror();
#define FIND(field, name) \
  if ((*(void **)&cuda.field = dlsym(library, name)) == NULL) return name
  FIND(init, "cuInit");
  FIND(count, "cuDeviceGetCount");
  FIND(retain, "cuDevicePrimaryCtxRetain");
  FIND(current, "cuCtxSetCurrent");
  FIND(alloc, "cuMemAlloc_v2");
  FIND(release, "cuMemFree_v2");
  FIND(to, "cuMemcpyHtoD_v2");
  FIND(from, "cuMemcpyDtoH_v2");
  FIND(module, "cuModuleLoadData");
  FIND(unload, "cuModuleUnload");
  FIND(function, "cuModuleGetFunction");
  FIND(launch, "cuLaunchKernel");
  FIND(synchronize, "cuCtxSynchronize");
  return NULL;
}

static void *context;
static int begin(int *count) {
  int result = cuda.init(0);
  if (result == 0) result = cuda.count(count);
  return result != 0 ? result : cuda.retain(&context, 0);
}

// buffer[i] += by, on the device
static const char text[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry add(.param .u64 p, .param .u32 n, .param .u32 by) {\n"
    " .reg .pred %q; .reg .u32 %r<6>; .reg .u64 %d<4>;\n"
    " ld.param.u64 %d0, [p]; ld.param.u32 %r0, [n]; ld.param.u32 %r5, [by];\n"
    " mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;\n"
    " mad.lo.u32 %r1, %r1, %r2, %r3; setp.ge.u32 %q, %r1, %r0; @%q ret;\n"
    " mul.wide.u32 %d1, %r1, 4; add.u64 %d2, %d0, %d1;\n"
    " ld.global.u32 %r4, [%d2]; add.u32 %r4, %r4, %r5; st.global.u32 [%d2], %r4; ret;\n}\n";

// One call of C, so that it stays on one thread: 0, a CUresult, or -1 for a wrong number.
static int work(uint32_t *buffer, uint32_t count, uint32_t by) {
  uint64_t address = 0;
  void *module = NULL, *function;
  uint32_t first = buffer[0], last = buffer[count - 1];
  int result = cuda.current(context);
  if (result == 0) result = cuda.alloc(&address, 4ull * count);
  if (result == 0) result = cuda.to(address, buffer, 4ull * count);
  if (result == 0) result = cuda.module(&module, text);
  if (result == 0) result = cuda.function(&function, module, "add");
  void *parameters[] = {&address, &count, &by};
  if (result == 0) result = cuda.launch(function, (count + 127) / 128, 1, 1, 128, 1, 1, 0, NULL, parameters, NULL);
  if (result == 0) result = cuda.from(buffer, address, 4ull * count);
  if (result == 0 && (buffer[0] != first + by || buffer[count - 1] != last + by)) result = -1;
  if (module != NULL && cuda.unload(module) != 0 && result == 0) result = -2;
  if (address != 0 && cuda.release(address) != 0 && result == 0) result = -3;
  return result;
}
static int set_current(void) { return cuda.current(context); }
static int synchronize(void) { return cuda.synchronize(); }
*/
import "C"

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"unsafe"
)

const (
	workers = 32
	words   = 5000
)

var rounds int

func fail(what string, result C.int) {
	fmt.Printf("%s: %d\n", what, int(result))
	os.Exit(1)
}

// A goroutine that keeps its thread and calls again and again, or one that Go moves from thread to thread.
func worker(number int, keeps bool) {
	if keeps {
		runtime.LockOSThread()
		if result := C.set_current(); result != 0 {
			fail("current", result)
		}
	}
	buffer := make([]uint32, words) // Go's own memory, handed to C for the call
	for i := range buffer {
		buffer[i] = uint32(i * number)
	}
	for round := 0; round < rounds; round++ {
		if result := C.work((*C.uint32_t)(unsafe.Pointer(&buffer[0])), words, C.uint32_t(number)); result != 0 {
			fail("work", result)
		}
		if keeps {
			if result := C.synchronize(); result != 0 {
				fail("synchronize", result)
			}
		}
		runtime.Gosched()
	}
	for i := range buffer {
		if buffer[i] != uint32(i*number+rounds*number) {
			fail("a word", C.int(i))
		}
	}
	// A locked goroutine that ends takes its thread with it.
}

func main() {
	rounds, _ = strconv.Atoi(os.Args[2])
	path := C.CString(os.Args[1])
	if wrong := C.load(path); wrong != nil {
		fmt.Println(C.GoString(wrong))
		os.Exit(1)
	}
	C.free(unsafe.Pointer(path))
	var count C.int
	if result := C.begin(&count); result != 0 {
		fmt.Printf("no device: %d\n", int(result))
		os.Exit(2)
	}
	fmt.Fprintln(os.Stderr, "begun")
	var done atomic.Bool
	go func() { // preempts everybody: each collection stops the world with signals
		for !done.Load() {
			runtime.GC()
		}
	}()
	var group sync.WaitGroup
	for i := 1; i <= workers; i++ {
		group.Add(1)
		go func(number int) {
			defer group.Done()
			worker(number, number%2 == 0)
		}(i)
	}
	for i := 0; i < 5; i++ { // fork and exec, beside it all
		if out, err := exec.Command("/bin/echo", "child").Output(); err != nil || string(out) != "child\n" {
			fmt.Println("a child:", err)
			os.Exit(1)
		}
	}
	group.Wait()
	done.Store(true)
	fmt.Printf("%d device, %d goroutines, %d rounds each\n", int(count), workers, rounds)
}
