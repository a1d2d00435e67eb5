"""What this project decided: the tables the rules read. Change one only together with docs/architecture.md."""

import codecs

# Left to right: a folder of src/ includes itself and what stands before it.
FOLDER_ORDER = (
    "base",
    "settings",
    "tensor",
    "quantization",
    "model_config",
    "comm",
    "parallel",
    "checkpoint",
    "kv_cache",
    "tokenizer",
    "ops",
    "attention",
    "moe",
    "conversation",
    "model",
    "scheduler",
    "engine",
    "server",
    "cli",
)
# Narrower than the order: the only folders, besides itself, that a folder may include.
ONLY_INCLUDES = {"scheduler": ("base", "kv_cache")}
# Folders that stand to the left and still may not be included.
NEVER_INCLUDES = {"server": ("tensor",)}

MAX_HOST_FUNCTION_LINES = 60
MAX_DEVICE_FUNCTION_LINES = 200
MAX_HOST_PARAMETERS = 5
MAX_FILE_LINES = 800

ENVIRONMENT_FILE = "src/settings/environment.cc"
# Boundaries of threads and requests: the only places that may catch whatever comes.
CATCH_ALL_FILES = ("src/main.cc", "src/engine/engine_loop.cc", "src/server/http_server.cc")

# Headers of src/ops that hold no op of their own; every other header there is a quadruple with a reference peer.
OPS_HEADERS_WITHOUT_OP = ("op_context", "logit_adjustment", "logit_statistics", "instruction_sets_for_test", "weight_codecs-inl")

BANNED_NAME_PARTS = (
    "utils",
    "util",
    "helper",
    "helpers",
    "common",
    "misc",
    "manager",
    "impl",
    "v2",
    "v3",
    "new",
    "fast",
)
# Model families carry their published names.
ALLOWED_NAMES = ("deepseek_v3",)

# Regular expressions for what does not belong into the product: its makers' tools and machines. Rotated by 13 letters so
# that the list does not find itself.
FOREIGN_WORDS = tuple(
    codecs.decode(word, "rot13")
    for word in (
        r"pynhqr",
        r"naguebcvp",
        r"pungtcg",
        r"pbcvybg",
        r"pb-nhguberq-ol",
        r"trarengrq (?:ol|jvgu) na? (?:nv|yyz)\o",
        r"/jbex/(?:znva|funerq|\.yvoenel)",
        r"\.\./funerq/",
        r"(?<!\j)\.yvoenel/",
        r"/ebbg/",
        r"/ubzr/[n-m]",
    )
)
