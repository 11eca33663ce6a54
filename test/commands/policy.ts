/** An access file with entries that say more than a role. */

import { grant } from "../access/kit.ts";
import { people } from "./kit.ts";

/** Rita works on the tickets of her tenant, and what comes by `/mcp` is bounded. */
export const policy = `${people}
[[users]]
username = "rita"
attributes = { tenant = "acme" }

${grant("rita", "main", "ReadOnly", "max_rows = 100")}
[[acl]]
username = "rita"
database = "main"
tables = ["tickets"]
role = "ReadWrite"
columns = ["id", "tenant", "status"]
row_filter = [{ column = "tenant", cmp = "=", value = "@tenant" }]
require_approval = ["DELETE"]
approvers = ["alice"]
expires = 2126-01-01T00:00:00Z

${grant("rita", "side", "ReadWrite", "expires = 2020-01-01T00:00:00Z")}
[[users]]
username = "tom"
disabled = false

[[acl]]
username = "tom"
database = "main"
tables = ["notes", "log_*"]
role = "ReadOnly"

[[boundaries]]
via = "mcp"
role = "ReadOnly"
max_rows = 10
`;
