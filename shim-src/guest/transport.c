#include "guest/transport.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "guest/log.h"

static struct vgpu_transport_word last = {
    .size = sizeof last, .guest_wire = VGPU_WIRE_MAJOR, .host_wire = -1};

void vgpu_transport_begin(void) {
  last = (struct vgpu_transport_word){.size = sizeof last, .guest_wire = VGPU_WIRE_MAJOR, .host_wire = -1};
}

void vgpu_transport_met(const struct vgpu_welcome *welcome) {
  last.code = VGPU_TRANSPORT_OK;
  last.host_wire = welcome->major;
  size_t length = strnlen(welcome->host, sizeof welcome->host);
  memset(last.host, 0, sizeof last.host);
  memcpy(last.host, welcome->host, length < sizeof last.host ? length : sizeof last.host - 1);
}

void vgpu_transport_carried(enum vgpu_carrier carrier, const char *address) {
  last.carrier = carrier;
  snprintf(last.address, sizeof last.address, "%s", address);
}

void vgpu_transport_failed(enum vgpu_transport code, int error, int32_t status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(last.message, sizeof last.message, format, arguments);
  va_end(arguments);
  last.code = code;
  last.error = error;
  last.status = status;
  vgpu_log("no host: %s", last.message);
}

void vgpu_transport_tried(const char *address, bool first, bool none_left) {
  static struct vgpu_transport_word furthest;
  static char tried[sizeof furthest.tried];
  const size_t length = first ? 0 : strlen(tried);
  const bool named = strstr(last.message, address) != NULL;
  snprintf(tried + length, sizeof tried - length, "%s%s%s%s", first ? "" : "; ", named ? "" : address,
           named ? "" : ": ", last.message);
  if (first || last.code > furthest.code) furthest = last;
  vgpu_transport_begin();
  if (!none_left) return;
  last = furthest;
  memcpy(last.tried, tried, sizeof tried);
  snprintf(last.message, sizeof last.message, "%.*s", (int)sizeof last.message - 1, tried);
}

const struct vgpu_transport_word *vgpu_transport_last(void) {
  return &last;
}
