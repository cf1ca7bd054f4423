#include <stdio.h>
#include <string.h>

#include "host/backend/software/ptx/run/check.h"

#define MOST_DEFAULT 10u

static const char *type_word(enum ptx_type type) {
  static const char *const words[T_TYPES] = {
      [T_B8] = "b8",         [T_B16] = "b16", [T_B32] = "b32", [T_B64] = "b64",     [T_U8] = "u8",
      [T_U16] = "u16",       [T_U32] = "u32", [T_U64] = "u64", [T_S8] = "s8",       [T_S16] = "s16",
      [T_S32] = "s32",       [T_S64] = "s64", [T_F16] = "f16", [T_F16X2] = "f16x2", [T_BF16] = "bf16",
      [T_BF16X2] = "bf16x2", [T_F32] = "f32", [T_F64] = "f64", [T_B128] = "b128"};
  return type < T_TYPES && words[type] != NULL ? words[type] : "";
}

/*
 * Writes the name of an instruction, such as "ld.shared.v4.f32", as exactly as the decoded instruction
 * allows.
 */
static void name_instruction(const struct ptx_instruction *in, char *to, size_t size) {
  static const char *const spaces[] = {"", ".global", ".shared", ".local", ".const", ".param"};
  const char *space = in->space < sizeof spaces / sizeof *spaces ? spaces[in->space] : "";
  const char *vector = in->x_count == 2 ? ".v2" : in->x_count == 4 ? ".v4" : in->x_count == 8 ? ".v8" : "";
  switch (in->kind) {
    case K_LOAD:
      snprintf(to, size, "ld%s%s.%s", space, vector, type_word(in->type));
      break;
    case K_STORE:
      snprintf(to, size, "st%s%s.%s", space, vector, type_word(in->type));
      break;
    case K_ATOM:
      snprintf(to, size, "%s%s.%s", in->d == PTX_NONE && in->x_count == 0 ? "red" : "atom", space,
               type_word(in->type));
      break;
    case K_CP_ASYNC:
      snprintf(to, size, "cp.async");
      break;
    case K_WGMMA:
      snprintf(to, size, "wgmma.mma_async");
      break;
    case K_ASYNC_READ:
    case K_ASYNC_WRITE:
      snprintf(to, size, "cp.async.bulk");
      break;
    case K_LDMATRIX:
      snprintf(to, size, "ldmatrix");
      break;
    case K_STMATRIX:
      snprintf(to, size, "stmatrix");
      break;
    default:
      snprintf(to, size, "wmma");
      break;
  }
}

static void place_thread(const struct launch_state *l, uint32_t thread, uint32_t *to) {
  const uint32_t *size = l->launch->block;
  to[0] = thread % size[0];
  to[1] = thread / size[0] % size[1];
  to[2] = thread / size[0] / size[1];
}

void ptx_check_found(const struct place *at, enum check_kind kind, uint32_t lane, uint64_t address,
                     uint32_t bytes, const struct seen *other) {
  struct launch_state *l = at->worker->launch;
  struct ptx_kernel_findings *findings = l->findings;
  uint32_t most = l->launch->most_findings == 0 ? MOST_DEFAULT : l->launch->most_findings;
  uint32_t line = at->in->line, other_line = other == NULL ? 0 : other->line;
  pthread_mutex_lock(&l->lock);
  bool known = false;
  for (uint32_t i = 0; i < findings->site_count && !known; i++) {
    known = findings->sites[i].kind == kind && findings->sites[i].line == line &&
            findings->sites[i].other == other_line;
  }
  if (known || findings->site_count >= most || findings->site_count >= CHECK_SITES) {
    findings->rest++;
    pthread_mutex_unlock(&l->lock);
    return;
  }
  findings->sites[findings->site_count].kind = kind;
  findings->sites[findings->site_count].line = line;
  findings->sites[findings->site_count++].other = other_line;
  static const char *const spaces[] = {"shared", "shared", "shared", "shared", "local", "global"};
  struct ptx_finding finding = {.check = kind <= CHECK_WRITE_WRITE ? PTX_CHECK_RACE : PTX_CHECK_INIT,
                                .kernel = l->info->name,
                                .space = spaces[kind],
                                .writes = kind == CHECK_WRITE_READ || kind == CHECK_WRITE_WRITE,
                                .other_writes = kind != CHECK_WRITE_READ,
                                .line = line,
                                .other_line = other_line,
                                .address = address,
                                .bytes = bytes};
  name_instruction(at->in, finding.instruction, sizeof finding.instruction);
  memcpy(finding.block, at->warp->block->id, sizeof finding.block);
  place_thread(l, at->warp->number * PTX_LANES + lane, finding.thread);
  if (other != NULL) place_thread(l, other->thread, finding.other_thread);
  if (l->launch->report != NULL) l->launch->report(l->launch->user, &finding);
  pthread_mutex_unlock(&l->lock);
}

/*
 * Reports the number of further findings only each time that it has become ten times as large, because
 * kernels are launched often.
 */
void ptx_check_end(struct launch_state *l) {
  struct ptx_kernel_findings *findings = l->findings;
  if (l->launch->report == NULL || findings->rest == 0 || findings->rest / 10 < findings->told_rest) return;
  findings->told_rest = findings->rest;
  struct ptx_finding finding = {.kernel = l->info->name, .rest = findings->rest};
  l->launch->report(l->launch->user, &finding);
}
