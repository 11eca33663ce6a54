import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import type { Socket } from "node:net";

export function residentBytes(pid: number): number {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1]) * 1024;
}

export function openDescriptors(pid: number): number {
  return readdirSync(`/proc/${pid}/fd`).length;
}

export function openSockets(pid: number): number {
  const directory = `/proc/${pid}/fd`;
  return readdirSync(directory).filter((descriptor) => {
    try {
      return readlinkSync(`${directory}/${descriptor}`).startsWith("socket:");
    } catch {
      // It was closed in the meantime.
      return false;
    }
  }).length;
}

export function isAlive(pid: number): boolean {
  try {
    // A zombie has ended although it still has an entry.
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, "utf8"));
  } catch {
    return false;
  }
}

export function childrenOf(pid: number): number[] {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8");
  return children.trim().split(" ").filter(Boolean).map(Number);
}

/**
 * Bytes of an IPv4 connection on this machine that have not arrived yet, and bytes that the other
 * end has not read.
 */
export function sentBytes({ localPort = 0, remotePort = 0 }: Socket) {
  const table = readFileSync("/proc/net/tcp", "utf8");
  const [ours, theirs] = [localPort, remotePort].map(
    (port) => `0100007F:${port.toString(16).padStart(4, "0").toUpperCase()}`,
  );
  const [, onTheWay = "0"] = new RegExp(`${ours} ${theirs} \\w+ (\\w+):`).exec(table) ?? [];
  const [, unread = "0"] = new RegExp(`${theirs} ${ours} \\w+ \\w+:(\\w+)`).exec(table) ?? [];
  return { onTheWay: Number.parseInt(onTheWay, 16), unread: Number.parseInt(unread, 16) };
}

/** True once the other end has read all that was sent. */
export function isTaken(socket: Socket): boolean {
  if (socket.writableLength > 0 || sentBytes(socket).onTheWay > 0) return false;
  return sentBytes(socket).unread === 0;
}
