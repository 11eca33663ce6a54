/** The sections of the measurement, with their sizes. */
import type { GatehouseOptions } from "../peers/gatehouse.ts";
import { columns, rowFilter, withKeys } from "../peers/narrowing.ts";

/** Parameters of one size. Defaults: 50 users and tokens, 32 connections. */
export interface Size {
  readonly section: string;
  /** The position on the axis. */
  readonly at: number;
  readonly name: string;
  readonly gateway?: GatehouseOptions;
  readonly tokens?: number;
  readonly connections?: number;
}

const text = (count: number) => count.toLocaleString("en");
const bounded = (file: string) =>
  file +
  Array.from(
    { length: 100 },
    (_, index) => `[[boundaries]]\nvia = "query"\ndatabase = "other${index}"\nmax_rows = 100\n\n`,
  ).join("");

/** Busy connections get one upstream connection each, or 16 share one. */
const MANY_UP = 640;
/** File descriptors of a gateway in addition to connections. */
const OTHER_FILES = 100;

function openFilesLimit(): number {
  const report: { userLimits?: { open_files?: { soft?: unknown } } } = process.report.getReport();
  const limit = report.userLimits?.open_files?.soft;
  return typeof limit === "number" ? limit : Number.POSITIVE_INFINITY;
}

/** A gateway limits connections so that each can get one to the upstream. */
const mostConnections = Math.min(10_000, Math.floor((openFilesLimit() - OTHER_FILES) / 2));

export const sizes: readonly Size[] = [
  ...[50, 1000, 10_000, 30_000].map((users) => ({
    section: "users",
    at: users,
    name: `${text(users)} users`,
    gateway: { users },
  })),
  ...[1, 50, 1000, 10_000, 30_000, 100_000].map((tokens) => ({
    section: "tokens",
    at: tokens,
    name: `${text(tokens)} tokens`,
    tokens,
  })),
  ...[1, 10, 32, 100, 320, 1000, 3200, mostConnections].map((connections) => ({
    section: "connections",
    at: connections,
    name: `${text(connections)} connections`,
    connections,
    gateway: { connections: MANY_UP },
  })),
  ...[
    { name: "roles alone" },
    { name: "columns in each entry", editAccess: withKeys(columns) },
    { name: "columns and a row filter", editAccess: withKeys(`${columns}\n${rowFilter}`) },
    { name: "100 boundaries", editAccess: bounded },
  ].map(({ name, ...gateway }, at) => ({
    section: "rules",
    at: at + 1,
    name,
    gateway: { users: 10_000, ...gateway },
  })),
  ...[1, 2, 4].map((workers) => ({
    section: "workers",
    at: workers,
    name: `${workers} ${workers === 1 ? "process" : "processes"}`,
    gateway: { workers, isPinned: false },
  })),
];

/** All sections, in order. */
export const sections = [...new Set(sizes.map(({ section }) => section)), "replicas"];
