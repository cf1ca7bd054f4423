#include "probe/report.h"

#include <inttypes.h>
#include <string.h>

static const char suffix[] = " (simulated)";

bool vgpu_probe_ok(const struct vgpu_probe_report *report) {
  return report->finished && !report->failed && report->trip_ok;
}

static int character(const unsigned char *text, const unsigned char *end) {
  int length = *text < 0x80                     ? 1
               : *text >= 0xc2 && *text <= 0xdf ? 2
               : *text >= 0xe0 && *text <= 0xef ? 3
               : *text >= 0xf0 && *text <= 0xf4 ? 4
                                                : 0;
  if (length == 0 || end - text < length) return 0;
  for (int i = 1; i < length; i++) {
    if ((text[i] & 0xc0) != 0x80) return 0;
  }
  if ((*text == 0xe0 && text[1] < 0xa0) || (*text == 0xed && text[1] > 0x9f) ||
      (*text == 0xf0 && text[1] < 0x90) || (*text == 0xf4 && text[1] > 0x8f))
    return 0;
  return length;
}

/*
 * Prints any bytes as a JSON string. `size` limits them, because the child may have been killed while it
 * wrote the text.
 */
static void print_text(FILE *out, const char *string, size_t size) {
  const unsigned char *text = (const unsigned char *)string;
  const unsigned char *end = text + strnlen(string, size);

  fputc('"', out);
  while (text < end) {
    int length = character(text, end);
    if (length == 0) {
      fputs("\\ufffd", out);
      text++;
    } else if (length == 1 && (*text < ' ' || *text == '"' || *text == '\\' || *text == 0x7f)) {
      fprintf(out, "\\u%04x", *text);
      text++;
    } else {
      fwrite(text, 1, (size_t)length, out);
      text += length;
    }
  }
  fputc('"', out);
}

static void print_text_or_null(FILE *out, const char *string, size_t size) {
  if (strnlen(string, size) == 0) fputs("null", out);
  else print_text(out, string, size);
}

static bool is_simulated(const struct vgpu_probe_device *device) {
  size_t length = strnlen(device->name, sizeof device->name);
  size_t tail = sizeof suffix - 1;

  return length >= tail && memcmp(device->name + length - tail, suffix, tail) == 0;
}

static void print_devices(const struct vgpu_probe_report *report, FILE *out) {
  for (uint32_t i = 0; i < report->device_count && i < VGPU_PROBE_DEVICES; i++) {
    const struct vgpu_probe_device *device = &report->devices[i];
    fprintf(out, "%s{\"index\":%u,\"name\":", i ? "," : "", i);
    print_text(out, device->name, sizeof device->name);
    fprintf(out, ",\"compute\":\"%d.%d\",\"memory\":%" PRIu64 ",\"pci\":", device->compute_major,
            device->compute_minor, device->memory);
    print_text(out, device->pci, sizeof device->pci);
    fputs(",\"uuid\":", out);
    print_text(out, device->uuid, sizeof device->uuid);
    fputc('}', out);
  }
}

static void print_code_or_null(FILE *out, bool known, const char *code) {
  if (known) fprintf(out, "\"%s\"", code);
  else fputs("null", out);
}

/* Prints the answer of the library, which is not trusted: its text only up to the size of the field. */
static void print_host(const struct vgpu_transport_word *host, FILE *out) {
  fputs("\"host\":", out);
  /* An older library's answer ends before `carrier`. */
  if (host->size < offsetof(struct vgpu_transport_word, carrier)) {
    fputs("null", out);
    return;
  }
  const char *error = host->error == 0 ? NULL : strerrorname_np(host->error);
  fprintf(out, "{\"code\":\"%s\",\"errno\":", vgpu_transport_code((int32_t)host->code));
  print_code_or_null(out, error != NULL, error);
  fputs(",\"status\":", out);
  print_code_or_null(out, host->status != 0, vgpu_status_code(host->status));
  fprintf(out, ",\"guestWire\":%d,\"hostWire\":", host->guest_wire);
  if (host->host_wire >= 0) fprintf(out, "%d", host->host_wire);
  else fputs("null", out);
  fputs(",\"host\":", out);
  print_text_or_null(out, host->host, sizeof host->host);
  fputs(",\"message\":", out);
  const bool lists = host->size >= sizeof *host;
  if (lists && host->code != VGPU_TRANSPORT_OK && host->tried[0] != '\0')
    print_text_or_null(out, host->tried, sizeof host->tried);
  else print_text_or_null(out, host->message, sizeof host->message);
  fputs(",\"carrier\":", out);
  bool carried = host->size >= offsetof(struct vgpu_transport_word, address) &&
                 host->code == VGPU_TRANSPORT_OK && host->carrier != VGPU_CARRIER_NONE;
  print_code_or_null(out, carried, vgpu_carrier_code((int32_t)host->carrier));
  fputs(",\"address\":", out);
  print_text_or_null(out, lists ? host->address : "", lists ? sizeof host->address : 1);
  fputc('}', out);
}

bool vgpu_probe_print(const struct vgpu_probe_report *report, FILE *out) {
  bool simulated = false;

  for (uint32_t i = 0; i < report->device_count && i < VGPU_PROBE_DEVICES; i++)
    simulated = simulated || is_simulated(&report->devices[i]);

  fprintf(out,
          "{\"schema\":1,\"ok\":%s,\"simulated\":%s,\"library\":", vgpu_probe_ok(report) ? "true" : "false",
          simulated ? "true" : "false");
  print_text_or_null(out, report->library, sizeof report->library);
  if (report->driver > 0)
    fprintf(out, ",\"driver\":\"%d.%d\"", report->driver / 1000, report->driver % 1000 / 10);
  else fputs(",\"driver\":null", out);
  fputs(",\"devices\":[", out);
  print_devices(report, out);
  fputs("],\"roundTrip\":", out);
  if (report->trip_done)
    fprintf(out, "{\"bytes\":%" PRIu64 ",\"ok\":%s,\"microseconds\":%" PRIu64 "}", report->trip_bytes,
            report->trip_ok ? "true" : "false", report->trip_microseconds);
  else fputs("null", out);
  fputs(",\"compute\":", out);
  if (report->compute_begun)
    fprintf(out, "{\"ok\":%s,\"values\":%" PRIu64 ",\"wrong\":%" PRIu64 ",\"microseconds\":%" PRIu64 "}",
            report->compute_ok ? "true" : "false", report->compute_values, report->compute_wrong,
            report->compute_microseconds);
  else fputs("null", out);
  fprintf(out, ",\"nvml\":{\"ok\":%s,\"driver\":", report->nvml_ok ? "true" : "false");
  print_text_or_null(out, report->nvml_driver, sizeof report->nvml_driver);
  fputs(",\"error\":", out);
  print_text_or_null(out, report->nvml_error, sizeof report->nvml_error);
  fputs("},", out);
  print_host(&report->host, out);
  fputs(",\"error\":", out);
  if (report->failed) {
    fprintf(out, "{\"kind\":\"%s\",\"step\":", vgpu_probe_failure_code((int32_t)report->kind));
    print_text(out, report->step, sizeof report->step);
    if (report->coded) fprintf(out, ",\"code\":%d,\"name\":", report->code);
    else fputs(",\"code\":null,\"name\":", out);
    print_text_or_null(out, report->name, sizeof report->name);
    fputs(",\"message\":", out);
    print_text(out, report->message, sizeof report->message);
    fputc('}', out);
  } else {
    fputs("null", out);
  }
  fputs("}\n", out);
  return fflush(out) == 0 && !ferror(out);
}
