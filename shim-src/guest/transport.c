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

void vgpu_transport_carried(enum vgpu_carrier carrier) {
  last.carrier = carrier;
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

const struct vgpu_transport_word *vgpu_transport_last(void) {
  return &last;
}
