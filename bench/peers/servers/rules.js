/** The checks that every peer makes on a query, shared by those in JavaScript. */
const permissions = { Select: "read", Insert: "write", Update: "write", Delete: "write" };

/** True if the table of roles (`user:database` to `read` or `write`) allows the query. */
export function allows(roles, user, body) {
  const operations = Object.keys(body ?? {});
  const permission = permissions[operations[0]];
  if (operations.length !== 1 || permission === undefined) return false;
  const role = roles[`${user}:${body[operations[0]].database}`];
  return role === "write" || (role === "read" && permission === "read");
}
