"""Calls the whole API of the Python client as one user, and prints what came of each call as JSON.

Arguments: the port of the gateway, the user's token, an administrator's token, the user's database.
"""

import json
import sys

import chromadb
from chromadb import Search
from chromadb.api.client import AdminClient, Client
from chromadb.api.models.Collection import Collection
from chromadb.config import Settings
from chromadb.errors import ChromaError

port, token, admin_token, home = sys.argv[1:]
DATABASE = "shop"
VECTOR = [[0.1, 0.2, 0.3]]


def settings(bearer):
    return Settings(
        chroma_api_impl="chromadb.api.fastapi.FastAPI",
        chroma_server_host="127.0.0.1",
        chroma_server_http_port=int(port),
        chroma_server_headers={"Authorization": f"Bearer {bearer}"},
        anonymized_telemetry=False,
    )


def connect(bearer, database):
    headers = {"Authorization": f"Bearer {bearer}"}
    return chromadb.HttpClient(
        host="127.0.0.1", port=int(port), headers=headers, database=database,
        settings=Settings(anonymized_telemetry=False),
    )


admin = connect(admin_token, DATABASE)
for name in [one.name for one in admin.list_collections()]:
    admin.delete_collection(name)
docs = admin.get_or_create_collection("docs", embedding_function=None)
docs.upsert(ids=["1"], embeddings=VECTOR, documents=["for all"])
admin.create_collection("old", embedding_function=None)
lang = admin.create_collection("lang", embedding_function=None)
lang.add(ids=["1"], embeddings=VECTOR, documents=["a dog"], metadatas=[{"a": 1}])

client = connect(token, home)
administration = AdminClient(settings(token))
client.database = DATABASE
docs = Collection(client=client._server, model=docs._model, embedding_function=None)

calls = {
    "heartbeat": lambda: client.heartbeat(),
    "get_version": lambda: client.get_version(),
    "get_max_batch_size": lambda: client.get_max_batch_size(),
    "get_user_identity": lambda: client.get_user_identity(),
    "list_databases": lambda: administration.list_databases(),
    "set_tenant": lambda: client.set_tenant("default_tenant", DATABASE),
    "set_database": lambda: client.set_database(DATABASE),
    "get_tenant": lambda: administration.get_tenant("default_tenant"),
    "get_database": lambda: administration.get_database(DATABASE),
    "list_collections": lambda: client.list_collections(),
    "count_collections": lambda: client.count_collections(),
    "get_collection": lambda: client.get_collection("docs", embedding_function=None),
    "get_collection_by_id": lambda: client.get_collection_by_id(docs.id),
    "get_or_create_collection": lambda: client.get_or_create_collection(
        "docs", embedding_function=None
    ),
    "Collection.get": lambda: docs.get(),
    "Collection.peek": lambda: docs.peek(),
    "Collection.query": lambda: docs.query(query_embeddings=VECTOR, n_results=1),
    "Collection.search": lambda: docs.search(Search()),
    "Collection.count": lambda: docs.count(),
    "Collection.fork_count": lambda: docs.fork_count(),
    "Collection.get_indexing_status": lambda: docs.get_indexing_status(),
    "Collection.add": lambda: docs.add(ids=["2"], embeddings=VECTOR),
    "Collection.update": lambda: docs.update(ids=["1"], metadatas=[{"a": 1}]),
    "Collection.upsert": lambda: docs.upsert(ids=["3"], embeddings=VECTOR),
    "Collection.delete": lambda: docs.delete(ids=["2"]),
    "create_collection": lambda: client.create_collection("made", embedding_function=None),
    "Collection.modify": lambda: docs.modify(name="renamed"),
    "Collection.fork": lambda: docs.fork("forked"),
    "delete_collection": lambda: client.delete_collection("old"),
    "create_database": lambda: administration.create_database("created"),
    "delete_database": lambda: administration.delete_database("created"),
    "create_tenant": lambda: administration.create_tenant("acme"),
    "reset": lambda: client.reset(),
    "Collection.attach_function": lambda: docs._client.attach_function(
        "record_counter", "f", docs.id, "out", None, "default_tenant", DATABASE
    ),
    "Collection.get_attached_function": lambda: docs.get_attached_function("f"),
    "Collection.detach_function": lambda: docs.detach_function("f"),
}


def outcome(call):
    try:
        call()
    except ChromaError as error:
        # Chroma's own answer, such as that it does not implement it on a single node.
        return "allowed" if "request_id" not in str(error) else "refused"
    except Exception as error:
        text = str(error)
        if '"code":"' in text and '"request_id":"' in text:
            return "refused"
        return "allowed" if '"error":"' in text or "unimplemented" in text.lower() else text
    return "allowed"


def langchain():
    from langchain_chroma import Chroma
    from langchain_core.embeddings import DeterministicFakeEmbedding

    def store(name):
        embeddings = DeterministicFakeEmbedding(size=3)
        return Chroma(collection_name=name, client=client, embedding_function=embeddings)

    found = {"open a new collection": outcome(lambda: store("fresh"))}
    found["open"] = outcome(lambda: store("lang"))
    if found["open"] == "allowed":
        lang = store("lang")
        texts = lambda: lang.add_texts(["a cat"], metadatas=[{"a": 1}], ids=["1"])
        found["add_texts"] = outcome(texts)
        found["similarity_search"] = outcome(lambda: lang.similarity_search("a cat", k=1))
        found["get_by_ids"] = outcome(lambda: lang.get_by_ids(["1"]))
        found["delete"] = outcome(lambda: lang.delete(ids=["1"]))
        found["delete_collection"] = outcome(lambda: lang.delete_collection())
    return found


methods = {name for one in (Client, AdminClient) for name in dir(one) if name[0] != "_"}
methods |= {f"Collection.{name}" for name in dir(Collection) if name[0] != "_"}
results = {name: outcome(call) for name, call in calls.items()}
print(json.dumps({
    "calls": results,
    "langchain": langchain(),
    "methods": sorted(methods),
    "version": chromadb.__version__,
}))
