import { constants, lchownSync, readFileSync, realpathSync, type Stats, statSync } from "node:fs";
import { open, rename, rm } from "node:fs/promises";
import { userInfo } from "node:os";
import path from "node:path";
import type * as z from "zod";
import { systemCode } from "../client-error.ts";

const WRITABLE_BY_ANYONE = 0o222;
const WRITABLE_BY_GROUP_OR_OTHERS = 0o022;
const WRITABLE_BY_OTHERS = 0o002;
const READABLE_BY_OTHERS = 0o004;
const SETGID = 0o2000;

export function onlyOwnerWrites(stats: Stats): boolean {
  return (stats.mode & WRITABLE_BY_GROUP_OR_OTHERS) === 0;
}

export function isOwn(stats: Stats): boolean {
  return stats.uid === 0 || stats.uid === process.geteuid?.();
}

/**
 * Unlike `existsSync`, does not take a file for missing that this user may not look up.
 *
 * @throws the error of the file system
 */
export function isThere(file: string): boolean {
  return statSync(file, { throwIfNoEntry: false }) !== undefined;
}

/** Identifies a state of the file; undefined if there is no file. */
export type Fingerprint = string | undefined;

export function fingerprint(file: string): Fingerprint {
  try {
    const stat = statSync(file, { bigint: true, throwIfNoEntry: false });
    if (stat === undefined) return undefined;
    // ctime too: a change of permissions or a write that sets back mtime must not go unseen.
    return [stat.dev, stat.ino, stat.size, stat.mtimeNs, stat.ctimeNs].join(":");
  } catch (error) {
    // An unreadable path counts as a state of its own.
    return error instanceof Error ? error.message : "unreadable";
  }
}

/**
 * Gives a file that root has created in a service's directory to the directory's owner, since the
 * service could not use it otherwise. Does nothing for other callers.
 */
export function giveToDirectoryOwner(file: string): void {
  if (process.getuid?.() !== 0) return;
  const { uid, gid } = statSync(path.dirname(file));
  // The owner may have put a link in its place, to a file that only root may change.
  lchownSync(file, uid, gid);
}

const { O_WRONLY, O_APPEND, O_CREAT, O_NONBLOCK } = constants;
/** Without O_NONBLOCK, opening a pipe that no program reads would block forever, instead of ENXIO. */
export const APPEND_FLAGS = O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK;

/**
 * The flags that open a file to append to it, or create it. In the directory of another user they
 * refuse a link (ELOOP): that user may have put it there, to a file that only the caller may write.
 */
export function appendFlags(file: string): number {
  const { uid } = statSync(path.dirname(file));
  return uid === process.geteuid?.() ? APPEND_FLAGS : APPEND_FLAGS | constants.O_NOFOLLOW;
}

/**
 * Checks the permissions of a file that holds a secret. Group and others may not write it. Others
 * may not read it, unless reading is accepted (`checkReaders` is false) or the file is on a
 * read-only mount, such as a Kubernetes Secret, whose modes the operator cannot choose.
 *
 * @returns a reason not to trust the file, and the command that fixes it
 */
export function permissionProblem(
  file: string,
  stats: Stats,
  checkReaders: boolean,
): { readonly reason: string; readonly remedy: string } | undefined {
  const remedy = `chmod 600 ${shellQuoted(file)}`;
  if (!onlyOwnerWrites(stats)) return { reason: "its group or others may write it", remedy };
  const isReadable = (stats.mode & READABLE_BY_OTHERS) !== 0;
  if (!isReadable || !checkReaders || isOnReadOnlyMount(file)) return undefined;
  return { reason: "others may read it", remedy };
}

/**
 * Says which other users could replace a file in a directory of guarded files, and the fix.
 * Undefined if no one could. A setgid directory is meant for its group. If another user owns it
 * as well, it is a volume such as Kubernetes creates with `fsGroup`, which the caller cannot fix.
 */
export function directoryProblem(directory: string, { mode, uid }: Stats): string | undefined {
  const isShared = (mode & SETGID) !== 0;
  if (isShared && uid !== process.geteuid?.()) return undefined;
  if ((mode & (isShared ? WRITABLE_BY_OTHERS : WRITABLE_BY_GROUP_OR_OTHERS)) === 0)
    return undefined;
  if (isOnReadOnlyMount(directory)) return undefined;
  const who = isShared ? "others" : "its group or others";
  return `${who} may put another file there; fix it with: chmod go-w ${shellQuoted(directory)}`;
}

/** Quotes `text` as one word for a POSIX shell. */
export function shellQuoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

interface Mount {
  readonly point: string;
  readonly isReadOnly: boolean;
}

/** The mount that `file` is on; undefined if unknown. */
function mountOf(file: string): Mount | undefined {
  let mounts: string;
  try {
    mounts = readFileSync("/proc/self/mountinfo", "utf8");
  } catch {
    return undefined;
  }
  return findMount(mounts, realpathSync(file));
}

function isOnReadOnlyMount(file: string): boolean {
  return mountOf(file)?.isReadOnly ?? false;
}

/** Says why a file may not or cannot be replaced, even by root; undefined if nothing is known. */
export function replacementObstacle(file: string, { mode }: Stats): string | undefined {
  if ((mode & WRITABLE_BY_ANYONE) === 0) return "its mode is read-only";
  return mountOf(file)?.point === file ? "it is a mount point" : undefined;
}

/** Looks `file` up in a mount table in the format of proc_pid_mountinfo(5). */
export function findMount(mounts: string, file: string): Mount {
  let nearest: Mount = { point: "", isReadOnly: false };
  for (const line of mounts.split("\n")) {
    const [mount = "", fileSystem = ""] = line.split(" - ", 2);
    const [, , , , writtenPoint, mountOptions = ""] = mount.split(" ");
    if (writtenPoint === undefined) continue;
    const point = unescapeOctal(writtenPoint);
    // Of several mounts on one mount point, the last is on top.
    const isUnder = file === point || file.startsWith(point.endsWith("/") ? point : `${point}/`);
    if (!isUnder || point.length < nearest.point.length) continue;
    const [, , superOptions = ""] = fileSystem.split(" ");
    nearest = { point, isReadOnly: hasReadOnly(mountOptions) || hasReadOnly(superOptions) };
  }
  return nearest;
}

function hasReadOnly(options: string): boolean {
  return options.split(",").includes("ro");
}

function unescapeOctal(text: string): string {
  return text.replace(/\\([0-7]{3})/g, (_whole, digits: string) =>
    String.fromCharCode(Number.parseInt(digits, 8)),
  );
}

export function systemUser(): string {
  try {
    return userInfo().username;
  } catch {
    // A container may run under a uid without a name.
    return String(process.getuid?.() ?? "unknown");
  }
}

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

export function ownerName(file: string): string {
  try {
    return nameOfUser(statSync(file).uid);
  } catch {
    return "unknown";
  }
}

/** A file that holds secrets or decides access must not be used: its mode or its content is wrong. */
export class UnsafeFileError extends Error {
  readonly reason: string;

  constructor(file: string, reason: string) {
    super(`${file}: ${reason}`);
    this.name = "UnsafeFileError";
    this.reason = reason;
  }
}

const storageCodes = ["EROFS", "EACCES", "EPERM", "EBUSY", "ENOSPC", "EDQUOT", "EFBIG", "EIO"];

/** True for an error of the file system that the operator can fix with more space or permissions. */
export function isStorageError(error: unknown): boolean {
  return storageCodes.includes(systemCode(error));
}

/** Why a file cannot be read. */
export function readFailure(error: unknown): string {
  if (error instanceof UnsafeFileError) return error.reason;
  const code = systemCode(error);
  if (code === "ENOENT" || code === "ENOTDIR") return "does not exist";
  return code === "EACCES" ? "may not be read by this user" : `cannot be read (${code})`;
}

/** Keeps a byte-order mark. @throws UnsafeFileError if the bytes are not UTF-8 */
export function decodeUtf8(file: string, bytes: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new UnsafeFileError(file, "is not valid UTF-8");
  }
}

interface GuardedOptions {
  /** Also refuse a file that others may read. */
  readonly checkRead: boolean;
  /** Refuse a larger file, with this reason. */
  readonly most?: { readonly bytes: number; readonly reason: string };
}

/**
 * Reads a whole file that holds secrets or decides access. The open file is the one checked, so what
 * was checked is what is read.
 *
 * @throws UnsafeFileError if it is not a regular file, is too large, or has too wide permissions,
 * and the error of the file system if it cannot be read
 */
export async function readGuardedBytes(
  file: string,
  { checkRead, most }: GuardedOptions,
): Promise<Buffer> {
  // Without O_NONBLOCK, opening a FIFO in place of the file would block forever.
  await using handle = await open(file, constants.O_RDONLY | constants.O_NONBLOCK);
  const stat = await handle.stat();
  if (!stat.isFile()) throw new UnsafeFileError(file, "is not a regular file");
  const problem = permissionProblem(file, stat, checkRead);
  if (problem !== undefined) {
    throw new UnsafeFileError(file, `${problem.reason}; fix it with: ${problem.remedy}`);
  }
  if (most !== undefined && stat.size > most.bytes) throw new UnsafeFileError(file, most.reason);
  return await handle.readFile();
}

/** @throws UnsafeFileError also if it is not UTF-8 */
export async function readGuarded(file: string, options: GuardedOptions): Promise<string> {
  return decodeUtf8(file, await readGuardedBytes(file, options));
}

/**
 * Appends to a file (0600 and, for root, the directory's owner's), which is created if it is missing.
 *
 * @throws the error of the file system; then a full disk has kept no part of the text
 */
export async function appendWhole(file: string, text: string): Promise<void> {
  await using folder = isThere(file) ? undefined : await open(path.dirname(file), "r");
  await using handle = await open(file, appendFlags(file), 0o600);
  if (folder !== undefined) giveToDirectoryOwner(file);
  const bytes = Buffer.from(text);
  const before = await handle.stat();
  let written = 0;
  try {
    while (written < bytes.length) written += (await handle.write(bytes, written)).bytesWritten;
    if (before.isFile()) await handle.sync();
  } catch (error) {
    // Others may have appended to a file that is not locked.
    const isLast = (await handle.stat()).size === before.size + written;
    if (written > 0 && isLast) await handle.truncate(before.size);
    throw error;
  }
  await folder?.sync();
}

/** Makes a rename in `directory` survive a power failure. */
export async function syncDirectory(directory: string): Promise<void> {
  await using handle = await open(directory, "r");
  await handle.sync();
}

/**
 * Replaces `file` atomically: a reader, or a power failure at any moment, finds either the old or
 * the new content, whole. The caller holds the file's lock.
 *
 * @param like mode and owner for the new file; by default 0600 and, for root, the directory's owner
 * @param beforeRename runs once the new content is on disk
 * @throws the error of the file system; then the old content is still in place
 */
export async function replaceFile(
  file: string,
  content: string | Buffer,
  like?: Stats,
  beforeRename?: () => Promise<void>,
): Promise<void> {
  const directory = path.dirname(file);
  const temporary = path.join(directory, `.${path.basename(file)}.new`);
  // Opened first, since nothing may fail for lack of descriptors once the content is replaced.
  await using folder = await open(directory, "r");
  await rm(temporary, { force: true });
  try {
    {
      await using handle = await open(temporary, "wx", 0o600);
      await handle.writeFile(content);
      if (like === undefined) giveToDirectoryOwner(temporary);
      else {
        const own = await handle.stat();
        if (own.uid !== like.uid || own.gid !== like.gid) await handle.chown(like.uid, like.gid);
        await handle.chmod(like.mode & 0o7777);
      }
      await handle.sync();
    }
    await beforeRename?.();
    await rename(temporary, file);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
  await folder.sync();
}

/** Undefined for a line that is not JSON of this shape. */
export function parseLine<Shape extends z.ZodType>(
  shape: Shape,
  line: string,
): z.infer<Shape> | undefined {
  try {
    return shape.safeParse(JSON.parse(line)).data;
  } catch {
    return undefined;
  }
}
