import { readGuardedBytes } from "../files/guarded.ts";

/** Bytes that the access file may have: room for about 200,000 users. */
export const MAX_ACCESS_FILE_BYTES = 64 * 1024 * 1024;

/**
 * Reads the access file's bytes.
 *
 * @param options.checkRead also refuse a file that others may read
 * @throws UnsafeFileError if it is no regular file, too large, or its permissions are too wide, and
 *   the error of the file system if it cannot be read
 */
export function readAccessBytes(file: string, options: { checkRead: boolean }): Promise<Buffer> {
  return readGuardedBytes(file, { ...options, maxBytes: MAX_ACCESS_FILE_BYTES });
}
