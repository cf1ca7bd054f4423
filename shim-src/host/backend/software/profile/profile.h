/* A simulated device, from profiles/devices/NAME.json or compiled in. */
#ifndef VGPU_HOST_SOFTWARE_PROFILE_H
#define VGPU_HOST_SOFTWARE_PROFILE_H

#include "wire/frame.h"

struct vgpu_device_profile {
  /* The host appends " (simulated)". Zero-terminated. */
  char name[100];
  uint8_t uuid[16];
  uint64_t total_memory; /* bytes */
  uint32_t compute_major;
  uint32_t compute_minor;
  uint32_t pci_domain;
  uint32_t pci_bus;
  uint32_t pci_device;
  uint8_t attribute_known[VGPU_ATTRIBUTES_MAX / 8];
  int32_t attributes[VGPU_ATTRIBUTES_MAX]; /* by CUdevice_attribute number */
  uint32_t temperature;                    /* degrees Celsius; 0: not told */
  uint32_t power;                          /* milliwatts; 0: not told */
  uint32_t power_limit;                    /* milliwatts; 0: not told */
};

struct vgpu_device_profiles {
  uint32_t count;        /* 1..VGPU_DEVICES_MAX */
  int32_t cuda_version;  /* 13000 unless the file says otherwise */
  char nvml_version[32]; /* "580.65.06" unless the file says otherwise */
  struct vgpu_device_profile devices[VGPU_DEVICES_MAX];
};

/* Reads the text of a profile; messages use `name` for it. Returns 0, or -1 with a message in `error`. */
int vgpu_device_profiles_read(const char *name, const char *text, size_t size,
                              struct vgpu_device_profiles *profiles, char *error, size_t error_size);

/*
 * Reads a profile by name ("h100-80gb", searched in the NULL-terminated `directories`) or by path (a text
 * with a slash, or that ends in .json). Returns 0, or -1 with a message in `error` that names file and field.
 */
int vgpu_device_profiles_load(const char *name_or_path, const char *const *directories,
                              struct vgpu_device_profiles *profiles, char *error, size_t error_size);

/* Gives the device another bus, also in the attribute that programs read. */
void vgpu_device_profile_set_bus(struct vgpu_device_profile *device, uint32_t bus);

#endif
