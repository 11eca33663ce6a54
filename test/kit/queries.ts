/** Queries for tests in which the content does not matter. */
export const select = JSON.stringify({ Select: { database: "main", from: "t", columns: ["*"] } });
export const insert = JSON.stringify({
  Insert: { database: "main", table: "t", values: [{ id: 1 }] },
});

/**
 * The columns of a new table, each with its type or whole definition by name. The first one is the
 * primary key, unless its definition says otherwise.
 */
export function columnsOf(types: Readonly<Record<string, string | object>>): object[] {
  return Object.entries(types).map(([name, type], index) => ({
    name,
    ...(index === 0 && { primary_key: true }),
    ...(typeof type === "string" ? { type } : type),
  }));
}

export function queryHeaders(token: string): Record<string, string> {
  return { "Content-Type": "application/json", Authorization: `Bearer ${token}` };
}
