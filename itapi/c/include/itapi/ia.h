/*
 * Interface adapters, paths to peers, and calls for objects of every kind.
 *
 * Part of it_api.h, which includes it. Reference: IT-API sections 6, 10, 15.
 */
#ifndef ITAPI_IA_H
#define ITAPI_IA_H

/**
 * Lists what it_ia_create() can open.
 *
 * interfaces: room for *num_interfaces entries, may be NULL if that is 0. num_interfaces: in, the
 * room; out, how many were filled in; NULL is 0. total_interfaces: out, how many there are; may be
 * NULL.
 */
void it_interface_list(OUT it_interface_t *interfaces,
                       IN OUT size_t *num_interfaces,
                       IN OUT size_t *total_interfaces);

/**
 * Opens an interface adapter.
 *
 * name: an interface from it_interface_list(); software iWARP is "vp_softrdma". major_version,
 * minor_version: the version of IT-API that the program was written for: 1.0, 2.0 or 2.1.
 * ia_handle: out.
 *
 * Errors: IT_ERR_INVALID_NAME, IT_ERR_INVALID_MAJOR_VERSION, IT_ERR_INVALID_MINOR_VERSION,
 * IT_ERR_RESOURCES, IT_ERR_NO_PERMISSION.
 */
it_status_t it_ia_create(IN const char *name,
                         IN uint32_t major_version,
                         IN uint32_t minor_version,
                         OUT it_ia_handle_t *ia_handle);

/**
 * Closes an interface adapter and destroys everything that was made from it, connections included.
 * Threads that wait on its event dispatchers return with IT_ERR_ABORT.
 *
 * Errors: IT_ERR_INVALID_IA.
 */
it_status_t it_ia_free(IN it_ia_handle_t ia_handle);

/**
 * Describes an interface adapter.
 *
 * ia_info: out, a block that it_ia_info_free() releases; it does not change any more.
 *
 * Errors: IT_ERR_INVALID_IA, IT_ERR_RESOURCES.
 */
it_status_t it_ia_query(IN it_ia_handle_t ia_handle, OUT it_ia_info_t **ia_info);

/**
 * Releases what it_ia_query() returned. NULL does nothing.
 */
void it_ia_info_free(IN it_ia_info_t *ia_info);

/**
 * Makes a protection zone.
 *
 * Errors: IT_ERR_INVALID_IA, IT_ERR_RESOURCES.
 */
it_status_t it_pz_create(IN it_ia_handle_t ia_handle, OUT it_pz_handle_t *pz_handle);

/**
 * Destroys a protection zone; IT_ERR_PZ_BUSY while anything was made from it and not freed.
 *
 * Errors: IT_ERR_INVALID_PZ, IT_ERR_PZ_BUSY.
 */
it_status_t it_pz_free(IN it_pz_handle_t pz_handle);

/**
 * Returns the interface adapter of a protection zone. mask: IT_PZ_PARAM_ALL or what is wanted.
 *
 * Errors: IT_ERR_INVALID_PZ, IT_ERR_INVALID_MASK.
 */
it_status_t it_pz_query(IN it_pz_handle_t pz_handle,
                        IN it_pz_param_mask_t mask,
                        OUT it_pz_param_t *params);

/**
 * Lists the paths from a spigot to a network address.
 *
 * paths: room for *num_paths entries, may be NULL if that is 0. num_paths: in, the room; out, how
 * many were filled in. total_paths: out, how many there are. The paths' timeout is
 * the configured one.
 *
 * Errors: IT_ERR_INVALID_IA, IT_ERR_INVALID_SPIGOT, IT_ERR_INVALID_NETADDR, IT_ERR_ADDRESS,
 * IT_ERR_RESOURCES.
 */
it_status_t it_get_pathinfo(IN it_ia_handle_t ia_handle,
                            IN size_t spigot_id,
                            IN const it_net_addr_t *net_addr,
                            IN OUT size_t *num_paths,
                            OUT size_t *total_paths,
                            OUT it_path_t *paths);

/**
 * Converts a network address to another kind: IPv4 to IPv6 (::ffff:a.b.c.d), such an IPv6 address
 * to IPv4, IPv6 to an InfiniBand GID and back. An address that the other kind cannot express is
 * IT_ERR_INVALID_CONVERSION.
 *
 * Errors: IT_ERR_INVALID_NETADDR, IT_ERR_INVALID_CONVERSION.
 */
it_status_t it_convert_net_addr(IN const it_net_addr_t *source_addr,
                                IN it_net_addr_type_t addr_type,
                                OUT it_net_addr_t *destination_addr);

/**
 * Attaches a pointer or number of the application to an object of any kind.
 *
 * Errors: IT_ERR_INVALID_HANDLE.
 */
it_status_t it_set_consumer_context(IN it_handle_t handle, IN it_context_t context);

/**
 * Returns what it_set_consumer_context() attached to an object; IT_ERR_NO_CONTEXT if nothing was.
 *
 * Errors: IT_ERR_INVALID_HANDLE, IT_ERR_NO_CONTEXT.
 */
it_status_t it_get_consumer_context(IN it_handle_t handle, OUT it_context_t *context);

/**
 * Returns the kind of an object.
 *
 * Errors: IT_ERR_INVALID_HANDLE.
 */
it_status_t it_get_handle_type(IN it_handle_t handle, OUT it_handle_type_enum_t *type_of_handle);

/**
 * Converts a 64-bit number from host to network order.
 */
uint64_t it_hton64(IN uint64_t hostint);

/**
 * Converts a 64-bit number from network to host order.
 */
uint64_t it_ntoh64(IN uint64_t netint);

#endif
