import { chownSync, readFileSync, realpathSync, type Stats, statSync } from "node:fs";
import { userInfo } from "node:os";
import path from "node:path";

/** Who besides its owner may read or write a file. */

const WRITABLE_BY_GROUP_OR_OTHERS = 0o022;
const WRITABLE_BY_OTHERS = 0o002;
const READABLE_BY_OTHERS = 0o004;
const SETGID = 0o2000;

/** A reason not to trust a file, and the command that mends it. */
interface PermissionProblem {
  readonly reason: string;
  readonly remedy: string;
}

/** True if nobody but the owner may write the file. */
export function onlyOwnerWrites(stats: Stats): boolean {
  return (stats.mode & WRITABLE_BY_GROUP_OR_OTHERS) === 0;
}

/** True if the file belongs to the caller or to root. */
export function isOwn(stats: Stats): boolean {
  return stats.uid === 0 || stats.uid === process.geteuid?.();
}

/**
 * Gives what root has made in a service's directory to the directory's owner, or the service could
 * not use it. Does nothing for anybody else.
 */
export function giveToDirectoryOwner(file: string): void {
  if (process.getuid?.() !== 0) return;
  const { uid, gid } = statSync(path.dirname(file));
  chownSync(file, uid, gid);
}

/**
 * Judges the permissions of a file that holds a secret: group and others may not write it, and
 * others may not read it, unless reading is accepted (`checkReaders` is false) or the file is on a
 * read-only mount, such as a Kubernetes Secret, whose modes are not the operator's to choose.
 */
export function permissionProblem(
  file: string,
  stats: Stats,
  checkReaders: boolean,
): PermissionProblem | undefined {
  const remedy = `chmod 600 ${shellQuoted(file)}`;
  if (!onlyOwnerWrites(stats)) return { reason: "its group or others may write it", remedy };
  const isReadable = (stats.mode & READABLE_BY_OTHERS) !== 0;
  if (!isReadable || !checkReaders || isOnReadOnlyMount(file)) return undefined;
  return { reason: "others may read it", remedy };
}

/**
 * Says who else may put another file into a directory that holds guarded ones, and what mends that; undefined if nobody
 * may. One that hands its group on (setgid) is meant for that group; if it is somebody else's as well, it is a volume, as
 * Kubernetes makes those with `fsGroup`, and nothing that the caller could mend.
 */
export function directoryProblem(directory: string, { mode, uid }: Stats): string | undefined {
  const isShared = (mode & SETGID) !== 0;
  if (isShared && uid !== process.geteuid?.()) return undefined;
  if ((mode & (isShared ? WRITABLE_BY_OTHERS : WRITABLE_BY_GROUP_OR_OTHERS)) === 0)
    return undefined;
  if (isOnReadOnlyMount(directory)) return undefined;
  const who = isShared ? "others" : "its group or others";
  return `${who} may put another file there; mend it with: chmod go-w ${shellQuoted(directory)}`;
}

/** `text` as one word of a POSIX shell. */
export function shellQuoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** True if the file system that `file` is on is mounted read-only; false where that is unknown. */
function isOnReadOnlyMount(file: string): boolean {
  let mounts: string;
  try {
    mounts = readFileSync("/proc/self/mountinfo", "utf8");
  } catch {
    return false;
  }
  return isReadOnlyIn(mounts, realpathSync(file));
}

/** Looks `file` up in a table of mounts as proc_pid_mountinfo(5) describes it. */
export function isReadOnlyIn(mounts: string, file: string): boolean {
  let nearest = { point: "", isReadOnly: false };
  for (const line of mounts.split("\n")) {
    const [mount = "", fileSystem = ""] = line.split(" - ", 2);
    const [, , , , writtenPoint, mountOptions = ""] = mount.split(" ");
    if (writtenPoint === undefined) continue;
    const point = unescapeOctal(writtenPoint);
    // Of several mounts on one point the last is on top.
    if (!isUnder(file, point) || point.length < nearest.point.length) continue;
    const [, , superOptions = ""] = fileSystem.split(" ");
    nearest = { point, isReadOnly: hasReadOnly(mountOptions) || hasReadOnly(superOptions) };
  }
  return nearest.isReadOnly;
}

function isUnder(file: string, point: string): boolean {
  return file === point || file.startsWith(point.endsWith("/") ? point : `${point}/`);
}

function hasReadOnly(options: string): boolean {
  return options.split(",").includes("ro");
}

function unescapeOctal(text: string): string {
  return text.replace(/\\([0-7]{3})/g, (_whole, digits: string) =>
    String.fromCharCode(Number.parseInt(digits, 8)),
  );
}

/** The user whom this process runs as. */
export function systemUser(): string {
  try {
    return userInfo().username;
  } catch {
    // A container may run as a number without a name.
    return String(process.getuid?.() ?? "unknown");
  }
}

/** The name of a user of the system, or `uid 1000` where it has none. */
export function nameOfUser(uid: number): string {
  try {
    // passwd(5): name, password, uid.
    const users = readFileSync("/etc/passwd", "utf8")
      .split("\n")
      .map((line) => line.split(":"));
    const [name] = users.find(([, , id]) => id === String(uid)) ?? [];
    return name ?? `uid ${uid}`;
  } catch {
    return `uid ${uid}`;
  }
}

/** The system's user that a file belongs to; `unknown` for one that is gone. */
export function ownerOf(file: string): string {
  try {
    return nameOfUser(statSync(file).uid);
  } catch {
    return "unknown";
  }
}
