/** Queries for tests in which the content does not matter. */
export const select = JSON.stringify({ Select: { database: "main", from: "t", columns: ["*"] } });
export const insert = JSON.stringify({
  Insert: { database: "main", table: "t", values: [{ id: 1 }] },
});

export function queryHeaders(token: string): Record<string, string> {
  return { "Content-Type": "application/json", Authorization: `Bearer ${token}` };
}
