#include "api/device_attributes.h"
#include "host/backend/software/profile/profile.h"
#include "host/backend/software/profile/profile_reader.h"

#include <stdlib.h>
#include <string.h>

static int read_uuid(const struct vgpu_reader *reader, json_t *object, uint8_t uuid[16]) {
  const char *text;

  if (vgpu_reader_need(reader, object, "uuid") || vgpu_reader_text(reader, object, "uuid", &text)) return -1;
  if (!vgpu_reader_shaped(text, "GPU-hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh"))
    return vgpu_reader_fail(reader, "uuid",
                            "\"%.60s\" is not allowed; must look like "
                            "GPU-01234567-89ab-cdef-0123-456789abcdef (lower case)",
                            text);
  text += strlen("GPU-");
  for (int i = 0; i < 16; i++) {
    if (*text == '-') text++;
    char pair[3] = {text[0], text[1], '\0'};
    uuid[i] = (uint8_t)strtoul(pair, NULL, 16);
    text += 2;
  }
  return 0;
}

static int read_name(const struct vgpu_reader *reader, json_t *object, struct vgpu_device_profile *device) {
  const char *text;

  if (vgpu_reader_need(reader, object, "name") || vgpu_reader_text(reader, object, "name", &text)) return -1;
  size_t length = strlen(text);
  if (length == 0 || length >= sizeof device->name)
    return vgpu_reader_fail(reader, "name", "must have 1 to %zu characters", sizeof device->name - 1);
  for (const char *c = text; *c; c++) {
    if (*c < ' ' || *c > '~') return vgpu_reader_fail(reader, "name", "must be printable ASCII");
  }
  if (strstr(text, "(simulated)"))
    return vgpu_reader_fail(reader, "name", "must not say (simulated): the host appends that");
  memcpy(device->name, text, length + 1);
  return 0;
}

static int read_compute(const struct vgpu_reader *reader, json_t *object,
                        struct vgpu_device_profile *device) {
  const char *text;

  if (vgpu_reader_need(reader, object, "compute") || vgpu_reader_text(reader, object, "compute", &text))
    return -1;
  if ((!vgpu_reader_shaped(text, "d.d") && !vgpu_reader_shaped(text, "dd.d")) || *text == '0')
    return vgpu_reader_fail(reader, "compute", "\"%.20s\" is not allowed; must look like 9.0", text);
  device->compute_major = (uint32_t)strtoul(text, NULL, 10);
  device->compute_minor = (uint32_t)(text[strlen(text) - 1] - '0');
  return 0;
}

static void set_attribute(struct vgpu_device_profile *device, unsigned number, int32_t value) {
  device->attributes[number] = value;
  device->attribute_known[number / 8] |= (uint8_t)(1u << (number % 8));
}

void vgpu_device_profile_set_bus(struct vgpu_device_profile *device, uint32_t bus) {
  device->pci_bus = bus;
  set_attribute(device, VGPU_ATTRIBUTE_PCI_BUS_ID, (int32_t)bus);
}

/* Reads "10de:2330" and gives it as the attribute has it: the device above the vendor. 0 if absent. */
static int read_pci_identity(const struct vgpu_reader *reader, json_t *pci, const char *name,
                             uint32_t *identity) {
  const char *text;

  *identity = 0;
  if (vgpu_reader_text(reader, pci, name, &text)) return -1;
  if (!text) return 0;
  if (!vgpu_reader_shaped(text, "hhhh:hhhh"))
    return vgpu_reader_fail(
        reader, name, "\"%.20s\" is not allowed; must look like 10de:2330 (vendor:device, lower case)", text);
  *identity = (uint32_t)strtoul(text + 5, NULL, 16) << 16 | (uint32_t)strtoul(text, NULL, 16);
  return 0;
}

static int read_pci(struct vgpu_reader *reader, json_t *object, struct vgpu_device_profile *device) {
  static const char *const names[] = {"address", "device", "subsystem", NULL};
  json_t *pci = json_object_get(object, "pci");
  char outer[sizeof reader->where];
  const char *address;
  uint32_t identity, subsystem;

  if (vgpu_reader_need(reader, object, "pci")) return -1;
  if (!json_is_object(pci)) return vgpu_reader_fail(reader, "pci", "must be an object");
  memcpy(outer, reader->where, sizeof outer);
  strncat(reader->where, ".pci", sizeof reader->where - strlen(reader->where) - 1);

  if (vgpu_reader_only(reader, pci, names) || vgpu_reader_need(reader, pci, "address") ||
      vgpu_reader_text(reader, pci, "address", &address) ||
      read_pci_identity(reader, pci, "device", &identity) ||
      read_pci_identity(reader, pci, "subsystem", &subsystem))
    return -1;
  if (!vgpu_reader_shaped(address, "hhhh:hh:0h.0") && !vgpu_reader_shaped(address, "hhhh:hh:1h.0"))
    return vgpu_reader_fail(reader, "address", "\"%.20s\" is not allowed; must look like 0000:01:00.0",
                            address);
  device->pci_domain = (uint32_t)strtoul(address, NULL, 16);
  device->pci_bus = (uint32_t)strtoul(address + 5, NULL, 16);
  device->pci_device = (uint32_t)strtoul(address + 8, NULL, 16);
  if (identity) set_attribute(device, VGPU_ATTRIBUTE_GPU_PCI_DEVICE_ID, (int32_t)identity);
  if (subsystem) set_attribute(device, VGPU_ATTRIBUTE_GPU_PCI_SUBSYSTEM_ID, (int32_t)subsystem);
  memcpy(reader->where, outer, sizeof outer);
  return 0;
}

#define KNOWN(number, name) {number, #name, false},
#define DERIVED(number, name) {number, #name, true},
static const struct attribute {
  unsigned number;
  const char *name;
  bool derived;
} attribute_names[] = {VGPU_ATTRIBUTES(KNOWN, DERIVED)};
#undef KNOWN
#undef DERIVED

static const struct attribute *find_attribute(const char *name) {
  for (size_t i = 0; i < sizeof attribute_names / sizeof *attribute_names; i++) {
    if (strcmp(attribute_names[i].name, name) == 0) return &attribute_names[i];
  }
  return NULL;
}

static int check_attribute(const struct vgpu_reader *reader, const char *name,
                           const struct attribute *attribute) {
  if (!attribute)
    return vgpu_reader_fail(reader, name,
                            "unknown attribute; allowed: the driver API's names without "
                            "CU_DEVICE_ATTRIBUTE_, such as MULTIPROCESSOR_COUNT");
  if (attribute->derived)
    return vgpu_reader_fail(reader, name, "not allowed here: it follows from \"pci\" or \"compute\"");
  return 0;
}

static int read_attributes(struct vgpu_reader *reader, json_t *object, struct vgpu_device_profile *device) {
  static const char *const needed[] = {"MAX_THREADS_PER_BLOCK", "WARP_SIZE", "MULTIPROCESSOR_COUNT",
                                       "INTEGRATED", NULL};
  json_t *attributes = json_object_get(object, "attributes");
  char outer[sizeof reader->where];
  const char *name;
  json_t *ignored;

  if (vgpu_reader_need(reader, object, "attributes")) return -1;
  if (!json_is_object(attributes)) return vgpu_reader_fail(reader, "attributes", "must be an object");
  memcpy(outer, reader->where, sizeof outer);
  strncat(reader->where, ".attributes", sizeof reader->where - strlen(reader->where) - 1);

  json_object_foreach(attributes, name, ignored) {
    const struct attribute *attribute = find_attribute(name);
    long long value = 0;
    if (check_attribute(reader, name, attribute) ||
        vgpu_reader_number(reader, attributes, name, INT32_MIN, INT32_MAX, &value))
      return -1;
    set_attribute(device, attribute->number, (int32_t)value);
  }
  for (const char *const *each = needed; *each; each++) {
    if (vgpu_reader_need(reader, attributes, *each)) return -1;
  }
  memcpy(reader->where, outer, sizeof outer);
  return 0;
}

/* Checks a list that is only a note for people: every name must be an attribute's. */
static int check_assumed(const struct vgpu_reader *reader, json_t *object) {
  json_t *assumed = json_object_get(object, "assumed");
  size_t index, before;
  json_t *value;

  if (!assumed) return 0;
  if (!json_is_array(assumed))
    return vgpu_reader_fail(reader, "assumed", "must be a list of attribute names");
  json_array_foreach(assumed, index, value) {
    if (!json_is_string(value))
      return vgpu_reader_fail(reader, "assumed", "must be a list of attribute names");
    const char *name = json_string_value(value);
    if (check_attribute(reader, name, find_attribute(name))) return -1;
    for (before = 0; before < index; before++) {
      if (json_equal(json_array_get(assumed, before), value))
        return vgpu_reader_fail(reader, "assumed", "names %s twice", name);
    }
  }
  return 0;
}

int vgpu_reader_device(struct vgpu_reader *reader, json_t *object, struct vgpu_device_profile *device) {
  static const char *const names[] = {"name",    "uuid",        "memory", "compute",    "pci", "attributes",
                                      "assumed", "temperature", "power",  "powerLimit", NULL};
  long long memory = 0, temperature = 0, power = 0, limit = 0;

  if (!json_is_object(object)) return vgpu_reader_fail(reader, "", "must be an object");
  if (vgpu_reader_only(reader, object, names) || read_name(reader, object, device) ||
      read_uuid(reader, object, device->uuid) || vgpu_reader_need(reader, object, "memory") ||
      vgpu_reader_number(reader, object, "memory", 1LL << 20, 1LL << 40, &memory) ||
      read_compute(reader, object, device) || read_pci(reader, object, device) ||
      vgpu_reader_number(reader, object, "temperature", 0, 200, &temperature) ||
      vgpu_reader_number(reader, object, "power", 0, 10000000, &power) ||
      vgpu_reader_number(reader, object, "powerLimit", 0, 10000000, &limit) ||
      read_attributes(reader, object, device) || check_assumed(reader, object))
    return -1;

  device->total_memory = (uint64_t)memory;
  device->temperature = (uint32_t)temperature;
  device->power = (uint32_t)power;
  device->power_limit = (uint32_t)limit;
  vgpu_device_profile_set_bus(device, device->pci_bus);
  set_attribute(device, VGPU_ATTRIBUTE_PCI_DEVICE_ID, (int32_t)device->pci_device);
  set_attribute(device, VGPU_ATTRIBUTE_PCI_DOMAIN_ID, (int32_t)device->pci_domain);
  set_attribute(device, VGPU_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, (int32_t)device->compute_major);
  set_attribute(device, VGPU_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, (int32_t)device->compute_minor);
  return 0;
}
