/** Queries that tests send where it does not matter what is asked. */
export const select = JSON.stringify({ Select: { database: "main", from: "t", columns: ["*"] } });
export const insert = JSON.stringify({
  Insert: { database: "main", table: "t", values: [{ id: 1 }] },
});

export function queryHeaders(token: string): Record<string, string> {
  return { "Content-Type": "application/json", Authorization: `Bearer ${token}` };
}
