/*
 * The address of a host in text form: unix:/run/vgpu/hostd.sock, unix:@name (abstract), vsock:CID:PORT,
 * tcp:ADDRESS:PORT. Lists are separated by commas or blanks. A path may contain both, so a separator counts
 * only before unix:, vsock: or tcp:.
 */
#ifndef VGPU_WIRE_ADDRESS_H
#define VGPU_WIRE_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum vgpu_address_kind { VGPU_ADDRESS_UNIX = 1, VGPU_ADDRESS_VSOCK = 2, VGPU_ADDRESS_TCP = 3 };

struct vgpu_address {
  enum vgpu_address_kind kind;
  struct sockaddr_storage storage;
  socklen_t length;
};

/* Parses the address that a guest connects to. False: not a valid address; *address is then undefined. */
bool vgpu_address_parse(const char *text, struct vgpu_address *address);

/* Parses the address that a host listens on: as vgpu_address_parse, but `vsock:PORT` means any CID. */
bool vgpu_address_parse_listen(const char *text, struct vgpu_address *address);

#define VGPU_HOSTS_MAX 8u
#define VGPU_HOST_TEXT 160u

struct vgpu_hosts {
  uint32_t count;
  char addresses[VGPU_HOSTS_MAX][VGPU_HOST_TEXT];
};

/*
 * Splits a list of addresses, and does not parse them. False: there is no address, there are more than
 * VGPU_HOSTS_MAX, or one has VGPU_HOST_TEXT bytes or more; *hosts is then undefined.
 */
bool vgpu_hosts_split(const char *text, struct vgpu_hosts *hosts);

/* True for unix and vsock addresses and for TCP addresses of the loopback interface. */
bool vgpu_address_is_local(const struct vgpu_address *address);

#endif
