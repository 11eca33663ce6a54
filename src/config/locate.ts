import { outline, type Statement } from "../toml/outline.ts";

/** Where a value stands: names of keys, and numbers of elements from 0. */
export type ValuePath = readonly PropertyKey[];

/** What stands at a path; undefined if nothing does. */
export function valueAt(values: unknown, path: ValuePath): unknown {
  let value = values;
  for (const step of path) {
    if (typeof value !== "object" || value === null) return undefined;
    value = Object.getOwnPropertyDescriptor(value, step)?.value;
  }
  return value;
}

/**
 * Makes a function that gives the line of a value: where it is first written, else where the
 * nearest value or table around it is.
 */
export function lineLocator(text: string): (path: ValuePath) => number | undefined {
  const lines = new Map<string, number>();
  const elements = new Map<string, number>();
  for (const statement of outline(text)) {
    const path = valuePath(statement, elements);
    for (let length = path.length; length > 0; length -= 1) {
      const identity = identityOf(path.slice(0, length));
      if (!lines.has(identity)) lines.set(identity, statement.line);
    }
  }
  return (path) => {
    for (let length = path.length; length > 0; length -= 1) {
      const line = lines.get(identityOf(path.slice(0, length)));
      if (line !== undefined) return line;
    }
    return undefined;
  };
}

/** The statement's path with the number of the element behind each array of tables. */
function valuePath({ kind, path }: Statement, elements: Map<string, number>): ValuePath {
  const numbered: PropertyKey[] = [];
  for (const [index, name] of path.entries()) {
    numbered.push(name);
    const identity = identityOf(numbered);
    const isNewElement = kind === "array-table" && index === path.length - 1;
    if (isNewElement) elements.set(identity, (elements.get(identity) ?? -1) + 1);
    const element = elements.get(identity);
    if (element !== undefined) numbered.push(element);
  }
  return numbered;
}

function identityOf(path: ValuePath): string {
  return JSON.stringify(path);
}
