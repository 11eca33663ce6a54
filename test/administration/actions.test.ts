import t from "tap";
import { userLosingTokens } from "../../src/core/access/record-change.ts";
import {
  type AccountAction,
  accountActions,
  bodies,
} from "../../src/core/administration/actions.ts";
import { configurationSchema } from "../../src/core/config/schema.ts";
import { refusalOf, snapshotOf } from "../access/kit.ts";

const configuration = configurationSchema.parse({});
const snapshot = snapshotOf("root * Owner", "dora main DbAdmin", "bob main ReadOnly");
const root = { username: "root", tokenDatabase: "*" };
const dora = { username: "dora", tokenDatabase: "*" };

for (const [name, { plan }] of Object.entries<AccountAction>(accountActions)) {
  t.test(`only an administrator with an unlimited token may ${name} another user`, async (t) => {
    const judge = (actor: typeof root, username: string) =>
      refusalOf(() => plan(snapshot, actor, { username }, configuration));
    t.equal(judge(dora, "bob"), "role_insufficient");
    t.equal(judge({ ...root, tokenDatabase: "main" }, "bob"), "token_database");
    t.equal(judge(root, "nobody"), "user_not_found");
    const changes = plan(snapshot, root, { username: "bob", passwordHash: "new" }, configuration);
    t.strictSame(
      plan(snapshot, "operator", { username: "bob", passwordHash: "new" }, configuration),
      changes,
    );
    t.equal(userLosingTokens(changes), changes.length === 0 ? undefined : "bob");
  });
}

t.test("an invalid text is refused with the code of its field", async (t) => {
  const user = { username: "a b", email: "a\nb", password: "x", role: "King", database: "a.b." };
  const { error } = bodies.addUser.safeParse(user);
  const codes = error?.issues.map((issue) => issue.code === "custom" && issue.params?.code);
  t.strictSame(codes, ["invalid_username", "invalid_email", "invalid_role", "invalid_database"]);
});
