/*
 * The process that compiles: one for a session. Texts come in memory that it shares with the session's
 * process. A process of its own for each function writes the code to memory that the session can only
 * execute.
 */
#ifndef VGPU_PTX_COMPILER_H
#define VGPU_PTX_COMPILER_H

#include <pthread.h>

#include "host/backend/software/ptx/compile/region.h"

#define PTX_COMPILER_TEXT (16u << 20) /* bytes of a function's text */
#define PTX_COMPILER_CODE (32u << 20) /* bytes of code of a session */

/* In shared memory; the socket orders the accesses. */
struct ptx_compiler_box {
  uint64_t length; /* of the text */
  bool quick;      /* for ptx_llvm_compile */
  uint64_t entry;  /* the answer: the place of the code */
  uint64_t used;   /* nanoseconds of the processor since the last answer */
  uint64_t code;   /* bytes of code until now */
  char why[256];   /* if there is none; else empty */
  char text[PTX_COMPILER_TEXT];
};

struct ptx_compiler {
  enum ptx_compile mode;
  struct ptx_compiler_box *box;
  const unsigned char *code;
  int socket; /* -1: the process has ended */
  pthread_mutex_t lock;
  const struct ptx_module *asking; /* whose function is being compiled; NULL: none */
  struct ptx_function *function;
  struct ptx_compiled *compiled; /* without the code */
  struct ptx_compiler_counts counts;
  uint32_t looks; /* for its answer */
  uint64_t used;  /* nanoseconds that ptx_compiler_used has not returned yet */
  char why[256];  /* the last refusal */
};

/* Sends box->text; `quick` as in llvm.h. False: the process has ended. */
bool ptx_compiler_ask(struct ptx_compiler *compiler, size_t length, bool quick);
enum ptx_answer { PTX_ANSWER_NONE, PTX_ANSWER_CODE, PTX_ANSWER_REFUSED };
/* Whether the answer is there; waits for at most so many milliseconds. */
enum ptx_answer ptx_compiler_answer(struct ptx_compiler *compiler, int milliseconds, ptx_region_code **code);

#endif
