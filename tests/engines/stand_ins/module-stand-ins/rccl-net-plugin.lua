-- Stand-in for Frontier's module: it names a file, in a folder that no image has, as the plug-in of RCCL.
local folder = myFileName():gsub("module%-stand%-ins/.*$", "plug-in-stand-in")
setenv("NCCL_NET_PLUGIN", pathJoin(folder, "librccl-net.so"))
setenv("NCCL_CROSS_NIC", "0")
prereq("rocm")
