#include "host/backend/software/ptx/ptx.h"
#include "host/daemon/control/report.h"

#include <string.h>
#include <time.h>

#include "wire/address.h"
#include "wire/clock.h"
#include "wire/uuid.h"

/* Prints a name, with '?' for characters that JSON, a terminal or Prometheus cannot show. */
static void print_text(FILE *out, const char *text, size_t size) {
  for (size_t i = 0; i < size && text[i] != '\0'; i++) {
    unsigned char c = (unsigned char)text[i];
    fputc(c < ' ' || c > '~' || c == '"' || c == '\\' ? '?' : c, out);
  }
}

/* Like print_text, in quotes for JSON; keeps quotes and backslashes. */
static void print_json_text(FILE *out, const char *text) {
  fputc('"', out);
  for (; *text != '\0'; text++) {
    unsigned char c = (unsigned char)*text;
    if (c == '"' || c == '\\') fputc('\\', out);
    fputc(c < ' ' || c > '~' ? '?' : c, out);
  }
  fputc('"', out);
}

/* Writes a time as "2026-11-23T16:40:00Z"; "" if it is out of range. */
static const char *time_text(int64_t seconds, char *text, size_t size) {
  time_t at = (time_t)seconds;
  struct tm parts;
  if (gmtime_r(&at, &parts) == NULL || strftime(text, size, "%Y-%m-%dT%H:%M:%SZ", &parts) == 0)
    text[0] = '\0';
  return text;
}

static const char *kind_name(uint32_t kind) {
  return kind == VGPU_ADDRESS_UNIX ? "unix" : kind == VGPU_ADDRESS_VSOCK ? "vsock" : "tcp";
}

static const char *library_name(uint32_t library) {
  return library == VGPU_LIBRARY_NVML ? "libnvidia-ml" : "libcuda";
}

static const struct vgpu_session_entry *entry_of(const struct vgpu_sessions *sessions, uint64_t session) {
  for (uint32_t i = 0; i < VGPU_SESSIONS_MAX; i++) {
    const struct vgpu_session_entry *entry = &sessions->entries[i];
    if (entry->pid != 0 && entry->session == session) return entry;
  }
  return NULL;
}

static uint32_t busy_of(const struct vgpu_supervisor *supervisor, const struct vgpu_session_entry *entry) {
  const struct vgpu_account *account = &supervisor->accounts->slots[entry - supervisor->sessions.entries];
  return __atomic_load_n(&account->busy, __ATOMIC_RELAXED);
}

static uint64_t held_of(const struct vgpu_supervisor *supervisor, const struct vgpu_session_entry *entry) {
  const struct vgpu_account *account = &supervisor->accounts->slots[entry - supervisor->sessions.entries];
  return __atomic_load_n(&account->held, __ATOMIC_RELAXED);
}

static uint64_t driver_of(const struct vgpu_supervisor *supervisor, const struct vgpu_session_entry *entry) {
  const struct vgpu_account *account = &supervisor->accounts->slots[entry - supervisor->sessions.entries];
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < supervisor->inventory->count; i++)
    bytes += __atomic_load_n(&account->driver[i], __ATOMIC_RELAXED);
  return bytes;
}

/* Returns all device memory of a session, which is more than the guest's allocations. */
static uint64_t memory_of(const struct vgpu_supervisor *supervisor, const struct vgpu_session_entry *entry) {
  const struct vgpu_account *account = &supervisor->accounts->slots[entry - supervisor->sessions.entries];
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < supervisor->inventory->count; i++) bytes += vgpu_account_bytes(account, i);
  return bytes;
}

static uint64_t device_time_of(const struct vgpu_supervisor *supervisor,
                               const struct vgpu_session_entry *entry) {
  const struct vgpu_account *account = &supervisor->accounts->slots[entry - supervisor->sessions.entries];
  return __atomic_load_n(&account->computed, __ATOMIC_RELAXED) / 1000000u;
}

static const struct vgpu_seat_owner *seat_of(const struct vgpu_supervisor *supervisor,
                                             const struct vgpu_session_entry *entry) {
  return &supervisor->accounts->share.owners[entry - supervisor->sessions.entries];
}

/* Returns the milliseconds since the session's connection broke; 0: it is not broken. */
static uint64_t waiting_of(const struct vgpu_supervisor *supervisor, const struct vgpu_session_entry *entry) {
  const struct vgpu_account *account = &supervisor->accounts->slots[entry - supervisor->sessions.entries];
  int64_t since = __atomic_load_n(&account->waiting_since, __ATOMIC_RELAXED), now = vgpu_now_ms();
  return since <= 0 || since > now ? 0 : (uint64_t)(now - since) + 1;
}

/* Prints the host's devices that a session sees: "0,2". */
static void print_devices(FILE *out, const struct vgpu_supervisor *supervisor,
                          const struct vgpu_session_entry *entry) {
  const struct vgpu_chosen_devices *devices =
      &supervisor->accounts->owners[entry - supervisor->sessions.entries].devices;
  for (uint32_t i = 0; i < devices->count; i++) fprintf(out, i == 0 ? "%u" : ",%u", devices->index[i]);
}

struct report {
  FILE *out;
  const struct vgpu_supervisor *supervisor;
  struct vgpu_session_facts *facts;
  uint32_t count;
};

static uint32_t interpreting_of(const struct report *report) {
  const struct vgpu_supervisor *supervisor = report->supervisor;
  uint32_t count = 0;
  for (uint32_t i = 0; i < report->count; i++) {
    const struct vgpu_session_entry *entry = entry_of(&supervisor->sessions, report->facts[i].session);
    if (entry == NULL) continue;
    const size_t slot = (size_t)(entry - supervisor->sessions.entries);
    if (__atomic_load_n(&supervisor->accounts->slots[slot].interprets, __ATOMIC_RELAXED) != 0) count++;
  }
  return count;
}

static void kernels(const struct report *report) {
  const struct vgpu_code_options *code = &report->supervisor->code;
  const uint32_t interpreting = interpreting_of(report);
  uint32_t llvm = 0;
  const char *why = code->compile == PTX_COMPILE_NEVER ? "--software-compile is never"
                    : code->checks != 0                ? "--check is given"
                                                       : ptx_compiler_possible(&llvm);
  if (why != NULL) fprintf(report->out, "kernels: interpreted, because %s\n", why);
  else if (interpreting == 0) fprintf(report->out, "kernels: compiled with LLVM %u\n", llvm);
  else
    fprintf(report->out,
            "kernels: compiled with LLVM %u, but interpreted in %u of %u sessions, whose compiler could not "
            "start or has ended; the log has the reason: journalctl -u vgpu-hostd\n",
            llvm, interpreting, report->count);
}

static void table(const struct report *report, bool sessions_only) {
  FILE *out = report->out;
  const struct vgpu_supervisor *supervisor = report->supervisor;
  const struct vgpu_inventory *inventory = supervisor->inventory;
  if (!sessions_only) {
    fprintf(out, "vgpu-hostd %s, wire version %d.%d, --device %s%s\n", VGPU_VERSION, VGPU_WIRE_MAJOR,
            VGPU_WIRE_MINOR, supervisor->backend->name, supervisor->draining ? ", draining" : "");
    for (uint32_t i = 0; i < inventory->count; i++) {
      fprintf(out, "device %u: ", i);
      print_text(out, inventory->devices[i].name, sizeof inventory->devices[i].name);
      char uuid[VGPU_UUID_TEXT];
      vgpu_uuid_text(inventory->is_part[i] ? "MIG-" : "GPU-", inventory->devices[i].uuid, uuid);
      fprintf(out, ", %s, %llu of %llu MiB in use\n", uuid,
              (unsigned long long)(vgpu_accounts_used(supervisor->accounts, i) >> 20),
              (unsigned long long)(inventory->devices[i].total_memory >> 20));
    }
    if (supervisor->backend->number == VGPU_BACKEND_SOFTWARE) kernels(report);
    if (supervisor->refused_config.at != 0) {
      char when[32];
      fprintf(out, "configuration: refused at %s, so the former rules stay in force: ",
              time_text(supervisor->refused_config.at, when, sizeof when));
      for (const char *at = supervisor->refused_config.why; *at != '\0'; at++)
        fputc(*at < ' ' || *at > '~' ? '?' : *at, out);
      fputs("; correct it, then: vgpu-hostd reload\n", out);
    }
    fprintf(out, "sessions: %u now, %llu begun, %llu refused\n", report->count,
            (unsigned long long)supervisor->sessions.begun,
            (unsigned long long)supervisor->sessions.turned_away);
  }
  /* Without its heading an empty list would look like a failure. */
  if (report->count > 0 || sessions_only)
    fprintf(out, "%8s %-14s %-16s %8s %8s %10s %10s %6s %10s %9s %9s %8s %s\n", "SESSION", "PEER", "PROGRAM",
            "PID", "AGE", "MEMORY", "HOST", "SHARE", "DEVTIME", "LAUNCHES", "CALLS", "REFUSED", "DEVICES");
  for (uint32_t i = 0; i < report->count; i++) {
    const struct vgpu_session_facts *facts = &report->facts[i];
    const struct vgpu_session_entry *entry = entry_of(&supervisor->sessions, facts->session);
    if (entry == NULL) continue;
    char peer[24];
    snprintf(peer, sizeof peer, "%s:%u", kind_name(entry->peer.kind), entry->peer.id);
    const struct vgpu_seat_owner *seat = seat_of(supervisor, entry);
    char share[16];
    snprintf(share, sizeof share, seat->percent > 0 ? "%u%%" : "w%u",
             seat->percent > 0 ? seat->percent : seat->weight);
    fprintf(out, "%8llu %-14s %-16.16s %8u %7llus %7lluMiB %7lluMiB %6s %8llums %9llu %9llu %8llu ",
            (unsigned long long)facts->session, peer, facts->program, facts->pid,
            (unsigned long long)(facts->age / 1000), (unsigned long long)(memory_of(supervisor, entry) >> 20),
            (unsigned long long)(held_of(supervisor, entry) >> 20), share,
            (unsigned long long)device_time_of(supervisor, entry), (unsigned long long)facts->launches,
            (unsigned long long)facts->calls, (unsigned long long)facts->refused);
    print_devices(out, supervisor, entry);
    uint64_t waiting = waiting_of(supervisor, entry);
    if (waiting > 0)
      fprintf(out, " (its connection broke: waiting for its guest, %llus)",
              (unsigned long long)(waiting / 1000));
    fputc('\n', out);
  }
}

static void json_session(FILE *out, const struct vgpu_supervisor *supervisor,
                         const struct vgpu_session_facts *facts, const struct vgpu_session_entry *entry) {
  fprintf(
      out,
      "{\"session\":%llu,\"peer\":{\"kind\":\"%s\",\"id\":%u},\"worker\":%ld,\"age\":%llu,\"memory\":%llu,"
      "\"driverMemory\":%llu,\"hostMemory\":%llu,\"deviceTime\":%llu,\"weight\":%u,\"share\":%u,\"launches\":"
      "%llu,"
      "\"calls\":%llu,\"busy\":%u,\"waiting\":%llu,\"refused\":%llu,"
      "\"lastRefusal\":%d,"
      "\"carrier\":\"%s\",\"claimed\":{"
      "\"library\":\"%s\","
      "\"pid\":%u,\"pidNamespace\":%u,\"program\":\"",
      (unsigned long long)facts->session, kind_name(entry->peer.kind), entry->peer.id, (long)entry->pid,
      (unsigned long long)facts->age, (unsigned long long)memory_of(supervisor, entry),
      (unsigned long long)driver_of(supervisor, entry), (unsigned long long)held_of(supervisor, entry),
      (unsigned long long)device_time_of(supervisor, entry), seat_of(supervisor, entry)->weight,
      seat_of(supervisor, entry)->percent, (unsigned long long)facts->launches,
      (unsigned long long)facts->calls, busy_of(supervisor, entry),
      (unsigned long long)waiting_of(supervisor, entry), (unsigned long long)facts->refused,
      facts->last_refusal, vgpu_carrier_code((int32_t)facts->carrier), library_name(facts->library),
      facts->pid, facts->pid_namespace);
  print_text(out, facts->program, sizeof facts->program);
  fputs("\"},\"devices\":[", out);
  print_devices(out, supervisor, entry);
  fputs("]}", out);
}

static void json(const struct report *report) {
  FILE *out = report->out;
  const struct vgpu_supervisor *supervisor = report->supervisor;
  const struct vgpu_inventory *inventory = supervisor->inventory;
  fprintf(out,
          "{\"schema\":1,\"version\":\"%s\",\"wire\":\"%d.%d\",\"device\":\"%s\",\"simulated\":%s,"
          "\"draining\":%s,\"devices\":[",
          VGPU_VERSION, VGPU_WIRE_MAJOR, VGPU_WIRE_MINOR, supervisor->backend->name,
          inventory->simulated ? "true" : "false", supervisor->draining ? "true" : "false");
  for (uint32_t i = 0; i < inventory->count; i++) {
    fprintf(out, "%s{\"index\":%u,\"name\":\"", i == 0 ? "" : ",", i);
    print_text(out, inventory->devices[i].name, sizeof inventory->devices[i].name);
    char uuid[VGPU_UUID_TEXT];
    vgpu_uuid_text(inventory->is_part[i] ? "MIG-" : "GPU-", inventory->devices[i].uuid, uuid);
    fprintf(out, "\",\"uuid\":\"%s\",\"memory\":%llu,\"used\":%llu}", uuid,
            (unsigned long long)inventory->devices[i].total_memory,
            (unsigned long long)vgpu_accounts_used(supervisor->accounts, i));
  }
  fputs("],\"refusedConfig\":", out);
  if (supervisor->refused_config.at == 0) {
    fputs("null", out);
  } else {
    char when[32];
    fprintf(out, "{\"at\":\"%s\",\"reason\":", time_text(supervisor->refused_config.at, when, sizeof when));
    print_json_text(out, supervisor->refused_config.why);
    fputc('}', out);
  }
  fprintf(out, ",\"totals\":{\"begun\":%llu,\"ended\":%llu,\"turnedAway\":%llu,\"most\":%u},\"sessions\":[",
          (unsigned long long)supervisor->sessions.begun, (unsigned long long)supervisor->sessions.ended,
          (unsigned long long)supervisor->sessions.turned_away, supervisor->sessions.limit);
  bool first = true;
  for (uint32_t i = 0; i < report->count; i++) {
    const struct vgpu_session_entry *entry = entry_of(&supervisor->sessions, report->facts[i].session);
    if (entry == NULL) continue;
    if (!first) fputc(',', out);
    json_session(out, supervisor, &report->facts[i], entry);
    first = false;
  }
  fputs("]}\n", out);
}

static void metric(FILE *out, const char *name, const char *type, const char *help) {
  fprintf(out, "# HELP vgpu_hostd_%s %s\n# TYPE vgpu_hostd_%s %s\n", name, help, name, type);
}

static void metrics(const struct report *report) {
  FILE *out = report->out;
  const struct vgpu_supervisor *supervisor = report->supervisor;
  const struct vgpu_inventory *inventory = supervisor->inventory;
  metric(out, "info", "gauge", "Version and kind of device; always 1.");
  fprintf(out, "vgpu_hostd_info{version=\"%s\",wire=\"%d.%d\",device=\"%s\",simulated=\"%d\"} 1\n",
          VGPU_VERSION, VGPU_WIRE_MAJOR, VGPU_WIRE_MINOR, supervisor->backend->name, inventory->simulated);
  metric(out, "config_refused", "gauge",
         "1: hostd.conf was refused when it was read again; the former rules stay in force.");
  fprintf(out, "vgpu_hostd_config_refused %d\n", supervisor->refused_config.at != 0);
  metric(out, "sessions", "gauge", "Sessions now.");
  fprintf(out, "vgpu_hostd_sessions %u\n", report->count);
  metric(out, "sessions_begun_total", "counter", "Sessions that began.");
  fprintf(out, "vgpu_hostd_sessions_begun_total %llu\n", (unsigned long long)supervisor->sessions.begun);
  metric(out, "turned_away_total", "counter", "Connections that were refused.");
  fprintf(out, "vgpu_hostd_turned_away_total %llu\n", (unsigned long long)supervisor->sessions.turned_away);
  metric(out, "device_memory_bytes", "gauge", "Memory of a device.");
  for (uint32_t i = 0; i < inventory->count; i++)
    fprintf(out, "vgpu_hostd_device_memory_bytes{device=\"%u\"} %llu\n", i,
            (unsigned long long)inventory->devices[i].total_memory);
  metric(out, "device_memory_used_bytes", "gauge", "The part of it that sessions hold.");
  for (uint32_t i = 0; i < inventory->count; i++)
    fprintf(out, "vgpu_hostd_device_memory_used_bytes{device=\"%u\"} %llu\n", i,
            (unsigned long long)vgpu_accounts_used(supervisor->accounts, i));
  static const struct {
    const char *name, *help;
    uint64_t (*of)(const struct vgpu_supervisor *supervisor, const struct vgpu_session_entry *entry);
  } memories[] = {
      {"session_memory_bytes", "Device memory of a session.", memory_of},
      {"session_host_memory_bytes", "Pinned and managed memory of a session.", held_of},
      {"session_driver_memory_bytes",
       "The part of a session's device memory that the driver uses: contexts, code, heaps, pools.",
       driver_of}};
  for (size_t k = 0; k < sizeof memories / sizeof *memories; k++) {
    metric(out, memories[k].name, "gauge", memories[k].help);
    for (uint32_t i = 0; i < report->count; i++) {
      const struct vgpu_session_entry *entry = entry_of(&supervisor->sessions, report->facts[i].session);
      if (entry == NULL) continue;
      fprintf(out, "vgpu_hostd_%s{session=\"%llu\",peer=\"%s:%u\"} %llu\n", memories[k].name,
              (unsigned long long)entry->session, kind_name(entry->peer.kind), entry->peer.id,
              (unsigned long long)memories[k].of(supervisor, entry));
    }
  }
  metric(
      out, "session_device_seconds_total", "counter",
      "Time of a device that a session took: processors of the simulated GPU, or turns on a GPU beside other "
      "peers.");
  for (uint32_t i = 0; i < report->count; i++) {
    const struct vgpu_session_entry *entry = entry_of(&supervisor->sessions, report->facts[i].session);
    if (entry == NULL) continue;
    fprintf(out, "vgpu_hostd_session_device_seconds_total{session=\"%llu\",peer=\"%s:%u\"} %.3f\n",
            (unsigned long long)entry->session, kind_name(entry->peer.kind), entry->peer.id,
            (double)device_time_of(supervisor, entry) / 1000);
  }
  metric(out, "session_share", "gauge",
         "Percent of each device that the session's peer has (share=); 0: by weight.");
  for (uint32_t i = 0; i < report->count; i++) {
    const struct vgpu_session_entry *entry = entry_of(&supervisor->sessions, report->facts[i].session);
    if (entry == NULL) continue;
    fprintf(out, "vgpu_hostd_session_share{session=\"%llu\",peer=\"%s:%u\"} %u\n",
            (unsigned long long)entry->session, kind_name(entry->peer.kind), entry->peer.id,
            seat_of(supervisor, entry)->percent);
  }
  static const struct {
    const char *name, *help;
    size_t offset;
  } counts[] = {
      {"session_launches", "Kernels of a session that ran.", offsetof(struct vgpu_session_facts, launches)},
      {"session_calls", "Calls of a session.", offsetof(struct vgpu_session_facts, calls)},
      {"session_refused", "Calls of a session that ended with an error.",
       offsetof(struct vgpu_session_facts, refused)}};
  for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
    metric(out, counts[k].name, "gauge", counts[k].help);
    for (uint32_t i = 0; i < report->count; i++) {
      const struct vgpu_session_facts *facts = &report->facts[i];
      const struct vgpu_session_entry *entry = entry_of(&supervisor->sessions, facts->session);
      if (entry == NULL) continue;
      uint64_t value;
      memcpy(&value, (const char *)facts + counts[k].offset, sizeof value);
      fprintf(out, "vgpu_hostd_%s{session=\"%llu\",peer=\"%s:%u\"} %llu\n", counts[k].name,
              (unsigned long long)facts->session, kind_name(entry->peer.kind), entry->peer.id,
              (unsigned long long)value);
    }
  }
}

void vgpu_report(FILE *out, const struct vgpu_supervisor *supervisor, enum vgpu_report_form form,
                 bool sessions_only) {
  static struct vgpu_session_facts facts[VGPU_SESSIONS_MAX];
  struct report report = {.out = out, .supervisor = supervisor, .facts = facts};
  report.count = vgpu_sessions_list(&supervisor->sessions, supervisor->accounts, NULL, facts);
  if (form == VGPU_REPORT_JSON) json(&report);
  else if (form == VGPU_REPORT_METRICS) metrics(&report);
  else table(&report, sessions_only);
}
