/*
 * One JSON document:
 *   {"schema":1,"ok":true,"error":null,"address":"vsock:2:14833",
 *    "host":"vgpu-hostd 0.1.0 software","simulated":true,
 *    "turnedAway":{"count":0,"status":0,"age":seconds},
 *    "refusedKernels":{"count":1,"age":seconds,"program":"llama-server","kernel":"the last one's name"},
 *    "memory":{"limit":bytes,"by":"guest","line":3,
 *              "refused":{"count":1,"age":seconds,"program":"llama-server",
 *                         "bytes":n,"limit":n,"free":n,"by":"guest"}},
 *    "sessions":[{"session":3,"age":milliseconds,"memory":bytes,"launches":9,"calls":99,"refused":1,
 *                 "lastRefusal":801,"carrier":"rings",
 *                 "claimed":{"library":"libcuda","pid":42,"pidNamespace":4026531836,
 *                            "program":"llama-server"}}]}
 *
 * If "ok" is false: "error":{"code":"...","status":n,"message":"..."} and no sessions. The guest's process
 * chose the text of `claimed` and of "program"; the host counted all else. "memory" is null for an older
 * host; "limit":0: none; "line": of hostd.conf, 0: none.
 */
#include "probe/sessions.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "guest/config.h"
#include "guest/transport.h"
#include "wire/clock.h"
#include "wire/greeting.h"
#include "wire/sessions.h"

static void print_text(FILE *out, const char *text) {
  fputc('"', out);
  for (; *text != '\0'; text++) {
    if (*text == '"' || *text == '\\') fputc('\\', out);
    fputc(*text < ' ' || *text > '~' ? '?' : *text, out);
  }
  fputc('"', out);
}

static bool fail(FILE *out, enum vgpu_sessions_failure code, int32_t status, const char *message) {
  fprintf(out, "{\"schema\":1,\"ok\":false,\"error\":{\"code\":\"%s\",\"status\":%d,\"message\":",
          vgpu_sessions_failure_code((int32_t)code), status);
  print_text(out, message);
  fputs("},\"sessions\":[]}\n", out);
  return false;
}

static const char *library_name(uint32_t library) {
  return library == VGPU_LIBRARY_CUDA ? "libcuda" : library == VGPU_LIBRARY_NVML ? "libnvidia-ml" : "?";
}

static void print_session(FILE *out, const struct vgpu_session_facts *facts) {
  fprintf(out,
          "{\"session\":%llu,\"age\":%llu,\"memory\":%llu,\"launches\":%llu,\"calls\":%llu,\"refused\":%llu,"
          "\"lastRefusal\":%d,\"carrier\":\"%s\",\"claimed\":{\"library\":\"%s\",\"pid\":%u,"
          "\"pidNamespace\":%u,\"program\":",
          (unsigned long long)facts->session, (unsigned long long)facts->age,
          (unsigned long long)facts->memory, (unsigned long long)facts->launches,
          (unsigned long long)facts->calls, (unsigned long long)facts->refused, facts->last_refusal,
          vgpu_carrier_code((int32_t)facts->carrier), library_name(facts->library), facts->pid,
          facts->pid_namespace);
  print_text(out, facts->program);
  fputs("}}", out);
}

static void print_memory(FILE *out, const struct vgpu_sessions_list *list) {
  const struct vgpu_memory_told *memory = &list->memory;
  if (!list->memory_is_told) {
    fputs("null", out);
    return;
  }
  fprintf(out,
          "{\"limit\":%llu,\"by\":\"%s\",\"line\":%u,\"refused\":{\"count\":%llu,\"age\":%u,\"program\":",
          (unsigned long long)memory->limit, vgpu_memory_limit_code((int32_t)memory->limited_by),
          memory->line, (unsigned long long)memory->refused, memory->refused_age);
  print_text(out, memory->refused_program);
  fprintf(out, ",\"bytes\":%llu,\"limit\":%llu,\"free\":%llu,\"by\":\"%s\"}}",
          (unsigned long long)memory->refused_bytes, (unsigned long long)memory->refused_limit,
          (unsigned long long)memory->refused_free, vgpu_memory_limit_code((int32_t)memory->refused_by));
}

static const char *refusal(const struct vgpu_sessions_list *list, char *text, size_t size) {
  const struct vgpu_welcome *host = &list->reply.welcome;
  if (list->status != VGPU_STATUS_VERSION || host->magic[0] == '\0') return vgpu_status_text(list->status);
  vgpu_version_text(host, text, size);
  return text;
}

static bool is_used(const struct vgpu_sessions_list *list) {
  for (uint32_t i = 0; i < list->reply.count; i++)
    if (list->sessions[i].memory > 0 || list->sessions[i].launches > 0) return true;
  return false;
}

static void print_list(FILE *out, const char *address, const struct vgpu_sessions_list *list) {
  fputs("{\"schema\":1,\"ok\":true,\"error\":null,\"address\":", out);
  print_text(out, address);
  fputs(",\"host\":", out);
  print_text(out, list->reply.welcome.host);
  fprintf(out,
          ",\"simulated\":%s,\"turnedAway\":{\"count\":%llu,\"status\":%d,\"age\":%u},\"refusedKernels\":{",
          list->reply.welcome.simulated != 0 ? "true" : "false", (unsigned long long)list->reply.turned_away,
          list->reply.last_turned_away, list->reply.turned_away_age);
  fprintf(out, "\"count\":%llu,\"age\":%u,\"program\":", (unsigned long long)list->reply.kernels_refused,
          list->reply.refused_age);
  print_text(out, list->reply.refused_program);
  fputs(",\"kernel\":", out);
  print_text(out, list->reply.refused_kernel);
  fputs("},\"memory\":", out);
  print_memory(out, list);
  fputs(",\"sessions\":[", out);
  for (uint32_t i = 0; i < list->reply.count; i++) {
    if (i > 0) fputc(',', out);
    print_session(out, &list->sessions[i]);
  }
  fputs("]}\n", out);
}

/* Asks one host. False: the host did not answer; the document says why. */
static bool ask_host(const char *text, struct vgpu_sessions_list *list, int64_t deadline, FILE *out) {
  struct vgpu_address address;
  if (!vgpu_address_parse(text, &address)) {
    char message[256];
    snprintf(message, sizeof message, "\"%s\" is not unix:PATH, vsock:CID:PORT or tcp:ADDRESS:PORT", text);
    return fail(out, VGPU_SESSIONS_FAILURE_BAD_ADDRESS, 0, message);
  }
  enum vgpu_sessions_result result = vgpu_sessions_ask(&address, list, deadline);
  int error = errno;
  if (result == VGPU_SESSIONS_OK) {
    print_list(out, text, list);
    return true;
  }
  enum vgpu_sessions_failure failure = 0;
  if (result == VGPU_SESSIONS_UNREACHED) failure = VGPU_SESSIONS_FAILURE_UNREACHABLE;
  if (result == VGPU_SESSIONS_TIMEOUT) failure = VGPU_SESSIONS_FAILURE_TIMEOUT;
  if (result == VGPU_SESSIONS_UNSOUND) failure = VGPU_SESSIONS_FAILURE_UNSOUND;
  if (result == VGPU_SESSIONS_REFUSED) {
    failure =
        list->status == VGPU_STATUS_REFUSED ? VGPU_SESSIONS_FAILURE_TOO_OLD : VGPU_SESSIONS_FAILURE_REFUSED;
  }
  char why[128];
  return fail(out, failure, list->status,
              failure == VGPU_SESSIONS_FAILURE_UNREACHABLE ? strerror(error)
              : failure == VGPU_SESSIONS_FAILURE_REFUSED   ? refusal(list, why, sizeof why)
                                                           : vgpu_sessions_failure_text((int32_t)failure));
}

/*
 * Asks the hosts of a list. The answer is that of the first host at which this guest uses a device, else of
 * the first that answers, else the last failure.
 */
static bool ask_hosts(const struct vgpu_hosts *hosts, struct vgpu_sessions_list *list, int64_t end,
                      FILE *out) {
  char *kept = NULL, *answer = NULL;
  size_t size;
  bool good = false, used = false;
  for (uint32_t i = 0; i < hosts->count && !used; i++) {
    FILE *document = open_memstream(&answer, &size);
    if (document == NULL) break;
    int64_t now = vgpu_now_ms();
    bool told = ask_host(hosts->addresses[i], list, now + (end - now) / (hosts->count - i), document);
    fclose(document);
    used = told && is_used(list);
    if (used || !good) {
      free(kept);
      kept = answer;
    } else {
      free(answer);
    }
    answer = NULL;
    good = good || told;
  }
  if (kept != NULL) fputs(kept, out);
  free(kept);
  return good;
}

bool vgpu_probe_sessions(const char *host, int64_t limit_ms, FILE *out) {
  struct vgpu_hosts hosts;
  if (host != NULL && !vgpu_hosts_split(host, &hosts))
    return fail(out, VGPU_SESSIONS_FAILURE_BAD_ADDRESS, 0, "--host: no address, or too many");
  if (host == NULL && !vgpu_config_hosts(&hosts))
    return fail(out, VGPU_SESSIONS_FAILURE_NOT_CONFIGURED, 0, vgpu_transport_last()->message);
  struct vgpu_sessions_list *list = malloc(sizeof *list);
  if (list == NULL) return fail(out, VGPU_SESSIONS_FAILURE_UNREACHABLE, 0, "no memory");
  bool good = ask_hosts(&hosts, list, vgpu_now_ms() + limit_ms, out);
  free(list);
  return fflush(out) == 0 && good;
}
