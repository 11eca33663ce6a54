import { UnsafeFileError } from "../files/guarded.ts";
import { LockRefusedError, LockTimeoutError } from "../files/lock.ts";
import { Refusal } from "../refusal.ts";
import { AccessFileError } from "./parse.ts";
import { UneditableError } from "./text-editor.ts";

/** The system does not let the file be written: by its rules, or for want of room. */
const unwritableCodes = new Set([
  ...["EROFS", "EACCES", "EPERM", "EBUSY"],
  ...["ENOSPC", "EDQUOT", "EFBIG", "EIO"],
]);
/** What stands in the file's place is no file: links in a circle, a socket, a path through a file. */
const misplacedCodes = new Set(["ELOOP", "ENXIO", "ENOTDIR", "EISDIR", "ENAMETOOLONG"]);

function invalid(message: string, cause: unknown): Refusal {
  return new Refusal("access_file_invalid", { message, cause });
}

/** What a writer is told that the access file cannot be changed by; other errors as they are. */
export function asWriteRefusal(error: unknown, file: string): unknown {
  if (error instanceof AccessFileError || error instanceof UnsafeFileError) {
    return new Refusal("access_file_invalid", { detail: error.message, cause: error });
  }
  if (error instanceof UneditableError) {
    return invalid(`The access file cannot be edited: ${error.message}`, error);
  }
  if (error instanceof LockTimeoutError) {
    return new Refusal("busy", { detail: error.message, retryAfter: 1 });
  }
  if (error instanceof LockRefusedError) {
    return new Refusal("access_file_read_only", { detail: error.message, cause: error });
  }
  if (!(error instanceof Error) || !("code" in error)) return error;
  const code = String(error.code);
  if (code === "ENOENT") return invalid("The access file is missing", error);
  if (misplacedCodes.has(code)) return invalid(`The access file cannot be read (${code})`, error);
  if (!unwritableCodes.has(code)) return error;
  const detail = `${file}: ${error.message}`;
  return new Refusal("access_file_read_only", { detail, cause: error });
}
