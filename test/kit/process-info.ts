import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import type { Socket } from "node:net";

/** Bytes of memory that a process holds resident. */
export function residentBytes(pid: number): number {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1]) * 1024;
}

/** The number of files and sockets that a process has open. */
export function openDescriptors(pid: number): number {
  return readdirSync(`/proc/${pid}/fd`).length;
}

/** The number of sockets that a process has open. */
export function openSockets(pid: number): number {
  const directory = `/proc/${pid}/fd`;
  return readdirSync(directory).filter((descriptor) => {
    try {
      return readlinkSync(`${directory}/${descriptor}`).startsWith("socket:");
    } catch {
      // It was closed while the others were looked at.
      return false;
    }
  }).length;
}

/** True while a process with this id is alive. */
export function isAlive(pid: number): boolean {
  try {
    // A process that has ended but was not waited for shows as Z.
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, "utf8"));
  } catch {
    return false;
  }
}

/** The children of a process. */
export function childrenOf(pid: number): number[] {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8");
  return children.trim().split(" ").filter(Boolean).map(Number);
}

/**
 * Bytes that the other end of a connection has not read yet. What it has read it knows of before
 * whatever reaches it from now on. For connections between two processes of this machine, on IPv4.
 */
export function unreadBytes({ localPort = 0, remotePort = 0 }: Socket): number {
  const ends = [remotePort, localPort].map((port) => port.toString(16).padStart(4, "0"));
  const [theirs, ours] = ends.map((port) => `0100007F:${port.toUpperCase()}`);
  const line = new RegExp(`${theirs} ${ours} \\w+ \\w+:(\\w+)`);
  const [, queued = "0"] = line.exec(readFileSync("/proc/net/tcp", "utf8")) ?? [];
  return Number.parseInt(queued, 16);
}
