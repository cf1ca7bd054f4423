#include "guest/transport.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "guest/log.h"

static struct vgpu_transport_word last = {
    .size = sizeof last, .guest_wire = VGPU_WIRE_MAJOR, .host_wire = -1};

static char tried[sizeof last.tried]; /* the hosts of a list that have failed so far, with their reasons */
static bool several;

static void forget(void) {
  last = (struct vgpu_transport_word){.size = sizeof last, .guest_wire = VGPU_WIRE_MAJOR, .host_wire = -1};
}

void vgpu_transport_begin(void) {
  forget();
  several = false;
}

void vgpu_transport_several(void) {
  several = true;
  tried[0] = '\0';
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
  if (several && tried[0] != '\0') vgpu_log("connected to %s; hosts tried before: %s", address, tried);
  several = false;
}

void vgpu_transport_failed(enum vgpu_transport code, int error, int32_t status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(last.message, sizeof last.message, format, arguments);
  va_end(arguments);
  last.code = code;
  last.error = error;
  last.status = status;
  if (!several) vgpu_log("no host: %s", last.message);
}

void vgpu_transport_tried(const char *address, bool none_left) {
  static struct vgpu_transport_word furthest;
  const size_t length = strlen(tried);
  const bool first = length == 0;
  const bool named = strstr(last.message, address) != NULL;
  snprintf(tried + length, sizeof tried - length, "%s%s%s%s", first ? "" : "; ", named ? "" : address,
           named ? "" : ": ", last.message);
  if (first || last.code > furthest.code) furthest = last;
  forget();
  if (!none_left) return;
  several = false;
  vgpu_log("no host: %s", tried);
  last = furthest;
  memcpy(last.tried, tried, sizeof tried);
  snprintf(last.message, sizeof last.message, "%.*s", (int)sizeof last.message - 1, tried);
}

const struct vgpu_transport_word *vgpu_transport_last(void) {
  return &last;
}
