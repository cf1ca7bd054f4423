#ifndef VGPU_HOST_GUESTS_H
#define VGPU_HOST_GUESTS_H

#include "host/daemon/supervisor.h"

void vgpu_guests_accept(struct vgpu_supervisor *supervisor, int listener);

void vgpu_guests_read(struct vgpu_supervisor *supervisor);

/*
 * Starts the workers of sessions that begin, oldest first, of each peer on at most half of the processors: a
 * start takes milliseconds of processor time.
 */
void vgpu_guests_begin(struct vgpu_supervisor *supervisor);

/* Closes the connections of sessions that begin. */
void vgpu_guests_abandon(struct vgpu_supervisor *supervisor);

/* Serves some of the connections that a successor passes because they continue sessions of this daemon. */
void vgpu_guests_return(struct vgpu_supervisor *supervisor);

#endif
