import type { ReadLine } from "../observe/audit-filter.ts";
import { plainly } from "./output.ts";

/** `Delete main.users`, the first of several with a count of the rest, or else the path. */
function whatWasAsked({ operations, operationCount, method, path }: ReadLine): string {
  const [first] = operations;
  if (first === undefined)
    return `${method ?? ""} ${path === undefined ? "-" : plainly(path)}`.trim();
  const { operation, database, tables } = first;
  const objects = tables.length === 0 ? [database] : tables.map((table) => `${database}.${table}`);
  const rest = operationCount > 1 ? `and ${operationCount - 1} more` : "";
  return [operation, objects.join(","), rest].filter((word) => word !== "").join(" ");
}

function changesOf({ changes }: ReadLine): string[] {
  return changes.map((one) => {
    const { change, ...about } = one;
    const words = Object.values(about)
      .flat()
      .filter((word) => word !== undefined);
    return [change, ...words.map((word) => plainly(String(word)))].join(" ");
  });
}

function rowsOf({ affected, rows }: ReadLine): string[] {
  return [
    ...(affected === undefined ? [] : [`affected ${affected}`]),
    ...(rows === undefined ? [] : [`rows ${rows}`]),
  ];
}

function requestText(line: ReadLine): string[] {
  const { user = "-", via, client, decision = "-", reason, status, operations } = line;
  const entries = new Set(operations.flatMap(({ entry }) => entry ?? []));
  return [
    plainly(user),
    ...(via === "mcp" ? ["mcp"] : []),
    ...(client === undefined ? [] : [plainly(client)]),
    whatWasAsked(line),
    reason === undefined ? decision : `${decision} ${reason}`,
    String(status ?? "-"),
    ...rowsOf(line),
    ...(entries.size === 0 ? [] : [`by ${[...entries].join(",")}`]),
    ...changesOf(line),
  ];
}

function eventText(line: ReadLine): string[] {
  const { msg, user, client, author, reason, outcome } = line;
  const by = author === undefined ? [] : [`${plainly(author.name)} (${author.kind})`];
  const about = [user, client, outcome, reason].filter((word) => word !== undefined);
  const changes = changesOf(line);
  return [...by, ...(changes.length > 0 ? changes : [msg, ...about.map(plainly)])];
}

/** A line of the audit for people: its parts are two spaces apart. */
export function lineText(line: ReadLine): string {
  const parts = line.msg === "request" ? requestText(line) : eventText(line);
  return [line.time, ...parts].join("  ");
}
