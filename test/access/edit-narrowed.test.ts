import t from "tap";
import { editText } from "../../src/access/edit.ts";
import type { Change } from "../../src/access/record-change.ts";
import { parseRecords } from "./kit.ts";

function edit(text: string, ...changes: Change[]): string {
  return editText(text, parseRecords(text, "access.toml"), changes);
}

const narrowed = `[[users]]
username = "rita"
# who she is
[users.attributes]
tenant = "acme" # the tenant

[[acl]]
username = "rita"
database = "main"
role = "ReadWrite" # for now
tables = ["tickets"] # alone
columns = [
  "id", # the key
  "status",
]
max_rows = 200

[[acl]]
username = "rita"
database = "main"
role = "ReadOnly"

# everybody's model reads
[[boundaries]]
via = "mcp"
role = "ReadOnly"
`;

const tickets = {
  username: "rita",
  database: "main",
  role: "ReadWrite",
  tables: ["tickets"],
  columns: ["id", "status"],
} as const;

t.test(
  "an entry in the place of the last one, or of one with an end, keeps the blank lines",
  (t) => {
    const whole = { username: "rita", database: "main" } as const;
    const edited = edit(
      narrowed,
      { kind: "remove-grant", grant: { ...whole, role: "ReadOnly" } },
      { kind: "add-grant", grant: { ...whole, role: "ReadWrite", expires: Date.UTC(2126, 0) } },
    );
    const lasting = 'role = "ReadOnly"\n\n';
    const ending = 'role = "ReadWrite"\nexpires = 2126-01-01T00:00:00Z\n\n';
    t.equal(edited.replace(".000Z", "Z"), narrowed.replace(lasting, ending));
    t.end();
  },
);

t.test("of an entry that says more, the keys alone are written that change", (t) => {
  const edited = edit(narrowed, {
    kind: "set-grant",
    grant: {
      ...tickets,
      maxRows: 100,
      rowFilter: [{ column: "tenant", cmp: "=", value: "@tenant" }],
      maxChanges: 2,
    },
  });
  t.equal(
    edited,
    narrowed.replace(
      "max_rows = 200\n",
      'max_rows = 100\nrow_filter = [{ column = "tenant", cmp = "=", value = "@tenant" }]\nmax_changes = 2\n',
    ),
  );
  const { columns: _, ...open } = tickets;
  const opened = edit(narrowed, { kind: "set-grant", grant: { ...open, role: "ReadOnly" } });
  t.match(opened, 'role = "ReadOnly" # for now\ntables = ["tickets"] # alone\n\n[[acl]]');
  t.end();
});

t.test("an entry that says more is added as it is, and taken away alone", (t) => {
  const expires = Date.UTC(2026, 11, 24, 18);
  const grant = { ...tickets, tables: ["customer_*"], expires };
  const added = edit(narrowed, { kind: "add-grant", grant });
  t.match(
    added,
    'tables = ["customer_*"]\ncolumns = ["id", "status"]\nexpires = 2026-12-24T18:00:00.000Z\n',
  );
  const removed = edit(narrowed, { kind: "remove-grant", grant: tickets });
  t.notMatch(removed, "tickets");
  t.match(removed, 'database = "main"\nrole = "ReadOnly"\n\n# everybody');
  t.match(removed, "# the tenant");
  t.end();
});

t.test("a user goes with its attributes, and what is set stands before them", (t) => {
  const email = edit(narrowed, {
    kind: "update-user",
    username: "rita",
    update: { email: "r@example.com" },
  });
  t.match(email, 'username = "rita"\nemail = "r@example.com"\n# who she is\n[users.attributes]\n');
  const gone = edit(narrowed, { kind: "remove-user", username: "rita" });
  t.notMatch(gone, "[users.attributes]");
  t.notMatch(gone, "acl");
  t.match(gone, "[[boundaries]]");
  t.end();
});
