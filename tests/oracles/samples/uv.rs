// A sample in the form of uv's backend.rs; only the lines that are read.
fn from_str(s: &str) -> Result<Self, Self::Err> {
    match s {
        "cpu" => Ok(Self::Cpu),
        "cu118" => Ok(Self::Cu118),
        "cu126" => Ok(Self::Cu126),
        "cu130" => Ok(Self::Cu130),
        "rocm6.3" => Ok(Self::Rocm63),
        "xpu" => Ok(Self::Xpu),
    }
}
static LINUX_CUDA_DRIVERS: LazyLock<[(TorchBackend, Version); 3]> = LazyLock::new(|| {
    [
        (TorchBackend::Cu130, Version::new([580])),
        (TorchBackend::Cu126, Version::new([525, 61, 13])),
        (TorchBackend::Cu118, Version::new([450, 80, 2])),
    ]
});
static WINDOWS_CUDA_VERSIONS: LazyLock<[(TorchBackend, Version); 1]> = LazyLock::new(|| {
    [(TorchBackend::Cu126, Version::new([528, 33]))]
});
static LINUX_AMD_GPU_DRIVERS: LazyLock<[(TorchBackend, AmdGpuArchitecture); 12]> = LazyLock::new(|| {
    [
        (TorchBackend::Rocm63, AmdGpuArchitecture::Gfx900),
        (TorchBackend::Rocm63, AmdGpuArchitecture::Gfx906),
        (TorchBackend::Rocm63, AmdGpuArchitecture::Gfx908),
        (TorchBackend::Rocm63, AmdGpuArchitecture::Gfx90a),
        (TorchBackend::Rocm63, AmdGpuArchitecture::Gfx942),
        (TorchBackend::Rocm63, AmdGpuArchitecture::Gfx1030),
        (TorchBackend::Rocm63, AmdGpuArchitecture::Gfx1100),
        (TorchBackend::Rocm63, AmdGpuArchitecture::Gfx1101),
        (TorchBackend::Rocm63, AmdGpuArchitecture::Gfx1102),
        (TorchBackend::Rocm63, AmdGpuArchitecture::Gfx1200),
        (TorchBackend::Rocm63, AmdGpuArchitecture::Gfx1201),
    ]
});
