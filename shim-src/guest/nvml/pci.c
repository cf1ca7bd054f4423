#include "api/device_attributes.h"
#include "guest/nvml/nvml.h"

#include <stdio.h>
#include <string.h>

static uint32_t identity(const struct vgpu_device_facts *facts, unsigned attribute) {
  int32_t value = 0;

  return vgpu_nvml_attribute(facts, attribute, &value) == NVML_SUCCESS ? (uint32_t)value : 0;
}

static int fill_pci(nvml_device device, const void *out, struct nvml_pci_v3 *pci) {
  struct vgpu_device_facts facts;
  int result = vgpu_nvml_facts(device, out, &facts, NULL);

  if (result != NVML_SUCCESS) return result;
  memset(pci, 0, sizeof *pci);
  pci->domain = facts.pci_domain;
  pci->bus = facts.pci_bus;
  pci->device = facts.pci_device;
  pci->pci_device_id = identity(&facts, VGPU_ATTRIBUTE_GPU_PCI_DEVICE_ID);
  pci->pci_subsystem_id = identity(&facts, VGPU_ATTRIBUTE_GPU_PCI_SUBSYSTEM_ID);
  snprintf(pci->bus_id_legacy, sizeof pci->bus_id_legacy, "%04x:%02x:%02x.0", pci->domain & 0xffff,
           pci->bus & 0xff, pci->device & 0xff);
  snprintf(pci->bus_id, sizeof pci->bus_id, "%08X:%02X:%02X.0", pci->domain, pci->bus & 0xff,
           pci->device & 0xff);
  return NVML_SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(nvml_device device, struct nvml_pci_v3 *pci) {
  struct nvml_pci_v3 filled;
  int result = fill_pci(device, pci, &filled);

  if (result == NVML_SUCCESS) *pci = filled;
  return result;
}

static int older_pci(nvml_device device, struct nvml_pci_v2 *pci, size_t size) {
  struct nvml_pci_v3 filled;
  struct nvml_pci_v2 older = {0};
  int result = fill_pci(device, pci, &filled);

  if (result != NVML_SUCCESS) return result;
  memcpy(older.bus_id, filled.bus_id_legacy, sizeof older.bus_id);
  older.domain = filled.domain;
  older.bus = filled.bus;
  older.device = filled.device;
  older.pci_device_id = filled.pci_device_id;
  older.pci_subsystem_id = filled.pci_subsystem_id;
  memcpy(pci, &older, size);
  return NVML_SUCCESS;
}

int nvmlDeviceGetPciInfo_v2(nvml_device device, struct nvml_pci_v2 *pci) {
  return older_pci(device, pci, sizeof *pci);
}

int nvmlDeviceGetPciInfo(nvml_device device, struct nvml_pci_v2 *pci) {
  return older_pci(device, pci, NVML_PCI_V1_SIZE);
}

int nvmlDeviceGetPciInfoExt(nvml_device device, struct nvml_pci_ext_v1 *pci) {
  struct nvml_pci_v3 filled;
  int result = fill_pci(device, pci, &filled);

  if (result != NVML_SUCCESS) return result;
  if (pci->version != NVML_STRUCT_VERSION(struct nvml_pci_ext_v1, 1)) return NVML_VERSION_MISMATCH;
  *pci = (struct nvml_pci_ext_v1){
      .version = pci->version,
      .domain = filled.domain,
      .bus = filled.bus,
      .device = filled.device,
      .pci_device_id = filled.pci_device_id,
      .pci_subsystem_id = filled.pci_subsystem_id,
      .base_class = 3, /* display controller */
      .sub_class = 2,  /* 3D controller, without a display */
  };
  memcpy(pci->bus_id, filled.bus_id, sizeof pci->bus_id);
  return NVML_SUCCESS;
}
