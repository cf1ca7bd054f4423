/*
 * The private tables of cuGetExportTable, as far as NVIDIA's CUDA runtimes and
 * libraries ask for them. docs/reference/private-tables.md says what each one is.
 */
#ifndef VGPU_PRIVATE_H
#define VGPU_PRIVATE_H

/*
 * cuGetExportTable: stores the table of that id in *table. For an unknown id all slots return an error. Needs
 * no cuInit and no host; safe from any thread.
 */
int vgpu_private_table(const void **table, const unsigned char uuid[16]);

#endif
