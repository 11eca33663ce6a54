import type { Access, Query } from "../query/query.ts";

/** `{"op":"create_table", ...fields}` with the client's own bytes for the fields. */
function operation(body: Buffer, access: Access): Buffer[] {
  const name = access.operation.replace(/(?<!^)[A-Z]/g, (letter) => `_${letter}`).toLowerCase();
  return [Buffer.from(`{"op":"${name}",`), body.subarray(access.start + 1, access.end)];
}

/**
 * Rewrites the outer shape of a query for engines that take the operation as a field. A Batch
 * becomes `["batch", operation, ...]`.
 */
export function toOpForm(body: Buffer, query: Query): Buffer {
  const [first] = query.accesses;
  if (first !== undefined && (!query.batch || first.operation === "Preview"))
    return Buffer.concat(operation(body, first));
  const comma = Buffer.from(",");
  const elements = query.accesses.flatMap((access) => [comma, ...operation(body, access)]);
  return Buffer.concat([Buffer.from('["batch"'), ...elements, Buffer.from("]")]);
}
